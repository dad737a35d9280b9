-- Stands before the text of each script that adds entries, and gives these their ids.
local ms, sequence

-- Adds an entry to a lane, for a request with a random hexadecimal id, at a time (as TIME gives it). Returns its id.
-- Redis' own ids ('*') begin at <ms>-0 again once it has lost its data: in that millisecond, or while the clock of a
-- replica that took over is behind, it would give the id of a lost entry to a new one, and who asks for the one would
-- be told of the other. So the part behind the ms has the microseconds, 20 bits of the first request that this script
-- adds, and the entry's number in it: 50 bits, which a Lua number holds exactly.
local function add_entry(lane, time, request_id, fields)
  if not ms then
    ms = string.format('%d-', time[1] * 1000 + math.floor(time[2] / 1000))
    sequence = (time[2] % 1000 * 2^20 + (tonumber(string.sub(request_id, 1, 5), 16) or 0)) * 2^20
  end
  sequence = sequence + 1
  local id = redis.pcall('XADD', lane, ms .. string.format('%d', sequence), unpack(fields))
  if type(id) == 'table' then  -- the clock went back, or somebody added a later id by hand; or no entry can be added
    id = redis.call('XADD', lane, '*', unpack(fields))
  end
  return id
end

