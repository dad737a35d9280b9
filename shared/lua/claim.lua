-- Claim: takes unread entries of the lanes in order, without blocking.
--
-- KEYS      lanes, in the order of keys.LANES
-- ARGV[1]   group      ARGV[2] consumer
-- ARGV[3]   most entries      ARGV[4] most tokens (estimated cost)
-- ARGV[5]   live workers      ARGV[6] entries that this worker holds
--
-- Returns {now_ms, {entries of lane 0, entries of lane 1, ...}, entries left}, each entry {id, {field, value, ...}}.
-- A worker holds at most its share of all entries, so that no backlog hides in one while another is idle; one that
-- holds nothing may always take one. COUNT of XREADGROUP is for each stream, so one call over two lanes would give
-- double and no priority.
local group, consumer = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local entries, pending_entries = 0, 0
for _, lane in ipairs(KEYS) do
  local pending = redis.pcall('XPENDING', lane, group)
  if pending.err then
    return pending
  end
  entries = entries + redis.call('XLEN', lane)
  pending_entries = pending_entries + pending[1]
end

local held = tonumber(ARGV[6])
local waiting = math.max(0, entries - pending_entries)
local share = math.ceil(entries / math.max(1, tonumber(ARGV[5]))) - held
if held == 0 then
  share = math.max(1, share)
end
local entries_left = math.min(tonumber(ARGV[3]), share, waiting)
local tokens_left = tonumber(ARGV[4])
local lanes = {}
for i, lane in ipairs(KEYS) do
  local taken = {}
  local count = 1  -- then as many as their like have room for
  while entries_left > 0 and tokens_left > 0 do
    local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', lane, '>')
    if not read then
      break
    end
    for _, entry in ipairs(read[1][2]) do
      taken[#taken + 1] = entry
      entries_left = entries_left - 1
      waiting = waiting - 1
      local cost = 1
      for f = 1, #entry[2], 2 do
        if entry[2][f] == 'cost' then
          cost = tonumber(entry[2][f + 1]) or 1
          break
        end
      end
      tokens_left = tokens_left - cost
      count = math.max(1, math.floor(tokens_left / cost))
    end
    count = math.min(count, entries_left, 32)
  end
  lanes[i] = taken
end
return {now, lanes, waiting}
