-- Prepended to each script that adds entries: gives them their ids.
local ms, next_sequence

-- Adds an entry to a lane, for a request with a random hexadecimal id, at a time (as TIME returns it). Returns its id.
-- Redis' automatic ids ('*') begin at <ms>-0 again after Redis has lost its data. In that millisecond, or while the
-- clock of a replica that took over is behind, a new entry would get the id of a lost one, and a gateway that looks for
-- the lost entry would find the new one. So the part behind the ms holds the microseconds, 20 bits of the id of the
-- first request that this script adds, and the number of the entry in this call: 50 bits, which a Lua number holds
-- exactly.
local function add_entry(lane, time, request_id, fields)
  if not ms then
    ms = string.format('%d-', time[1] * 1000 + math.floor(time[2] / 1000))
    next_sequence = (time[2] % 1000 * 2^20 + (tonumber(string.sub(request_id, 1, 5), 16) or 0)) * 2^20
  end
  next_sequence = next_sequence + 1
  local id = redis.pcall('XADD', lane, ms .. string.format('%d', next_sequence), unpack(fields))
  if type(id) == 'table' then
    -- The clock went back, or an entry with a later id was added by hand; or no entry can be added at all.
    id = redis.call('XADD', lane, '*', unpack(fields))
  end
  return id
end

