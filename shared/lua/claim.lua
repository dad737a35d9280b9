-- Claim: takes unread entries of the lanes in order, without blocking.
--
-- KEYS      lanes, in the order of keys.LANES
-- ARGV[1]   group      ARGV[2] consumer
-- ARGV[3]   most entries      ARGV[4] most tokens (estimated cost)
-- ARGV[5]   most entries, ARGV[6] most tokens of the lanes behind the first
-- ARGV[7]   tokens that these are owed: as many go before the first
-- ARGV[8]   live workers      ARGV[9] entries of the first lane that this worker holds, ARGV[10] of those behind it
--
-- Returns {now_ms, {entries of lane 0, entries of lane 1, ...}, {entries left in lane 0, ...}}, each entry
-- {id, {field, value, ...}}.
-- A worker holds at most its share of a lane's entries, so that no backlog hides in one while another is idle; one
-- that holds nothing may always take one. COUNT of XREADGROUP is for each stream, so one call over two lanes would give
-- double and no priority.
local group, consumer = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local workers, held, bulk_held = math.max(1, tonumber(ARGV[8])), tonumber(ARGV[9]), tonumber(ARGV[10])
local left, lanes, share = {}, {}, {}
for i, lane in ipairs(KEYS) do
  local pending = redis.pcall('XPENDING', lane, group)
  if pending.err then
    return pending
  end
  local length = redis.call('XLEN', lane)
  left[i] = math.max(0, length - pending[1])
  lanes[i] = {}
  share[i] = math.ceil(length / workers) - (i == 1 and held or bulk_held)
  if held + bulk_held == 0 then
    share[i] = math.max(1, share[i])
  end
end

local entries_left, tokens_left = tonumber(ARGV[3]), tonumber(ARGV[4])
local bulk_entries_left, bulk_tokens_left = tonumber(ARGV[5]), tonumber(ARGV[6])

local function cost_of(fields)
  for f = 1, #fields, 2 do
    if fields[f] == 'cost' then
      return tonumber(fields[f + 1]) or 1
    end
  end
  return 1
end

-- Reads one entry of a lane at least, if it may have any tokens, then as many as their like have room for.
local function take(i, tokens)
  local count = 1
  while tokens > 0 and left[i] > 0 do
    count = math.min(count, entries_left, share[i], 32)
    if i > 1 then
      count = math.min(count, bulk_entries_left)
    end
    if count < 1 then
      return
    end
    local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', KEYS[i], '>')
    if not read then
      left[i] = 0  -- what is counted by hand may be more than there is
      return
    end
    for _, entry in ipairs(read[1][2]) do
      lanes[i][#lanes[i] + 1] = entry
      left[i], share[i] = left[i] - 1, share[i] - 1
      entries_left, bulk_entries_left = entries_left - 1, bulk_entries_left - 1
      local cost = cost_of(entry[2])
      tokens, tokens_left, bulk_tokens_left = tokens - cost, tokens_left - cost, bulk_tokens_left - cost
      count = math.max(1, math.floor(tokens / cost))
    end
  end
end

local owed = tonumber(ARGV[7])
for i = 2, #KEYS do
  take(i, math.min(owed, tokens_left))
end
take(1, tokens_left)
for i = 2, #KEYS do
  take(i, math.min(tokens_left, bulk_tokens_left))
end
return {now, lanes, left}
