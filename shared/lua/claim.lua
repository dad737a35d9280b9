-- Claim: takes unread entries of the lanes in order, without blocking.
--
-- KEYS      lanes, in the order of keys.LANES
-- ARGV: ClaimArguments
--   group             consumer group
--   consumer          the worker that claims
--   max_entries       maximum entries
--   max_tokens        maximum tokens (estimated cost)
--   max_bulk_entries  maximum entries for the lanes behind the first; claimed entries of all lanes count against it
--   max_bulk_tokens   maximum tokens for the lanes behind the first; claimed tokens of all lanes count against it
--   bulk_owed         tokens owed to the lanes behind the first: these are claimed before the first lane
--   num_workers       live workers
--   held              entries of the first lane that this worker holds
--   bulk_held         entries of the other lanes that this worker holds
--   max_bytes         about the maximum bytes of the bodies; one entry may exceed it
--
-- Returns {now_ms, {entries of lane 0, entries of lane 1, ...}, {entries left in lane 0, ...}}, each entry
-- {id, {field, value, ...}}.
-- A worker holds at most its share of a lane's entries, so that no backlog piles up in one worker while another is idle.
-- A worker that holds nothing may always take one. COUNT of XREADGROUP applies to each stream, so one call over two
-- lanes would return double and without priority.
local group, consumer, max_entries, max_tokens, max_bulk_entries, max_bulk_tokens, bulk_owed, num_workers, held,
      bulk_held, max_bytes = unpack(ARGV, 1, 11)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local workers, num_held, num_bulk_held = math.max(1, tonumber(num_workers)), tonumber(held), tonumber(bulk_held)
local left, lanes, share = {}, {}, {}
for i, lane in ipairs(KEYS) do
  local pending = redis.pcall('XPENDING', lane, group)
  if pending.err then
    return pending
  end
  local length = redis.call('XLEN', lane)
  left[i] = math.max(0, length - pending[1])
  lanes[i] = {}
  share[i] = math.ceil(length / workers) - (i == 1 and num_held or num_bulk_held)
  if num_held + num_bulk_held == 0 then
    share[i] = math.max(1, share[i])
  end
end

local entries_left, tokens_left = tonumber(max_entries), tonumber(max_tokens)
local bulk_entries_left, bulk_tokens_left = tonumber(max_bulk_entries), tonumber(max_bulk_tokens)
local bytes_left = tonumber(max_bytes)

-- Reads entries of a lane: first one, if any tokens and bytes are left for it, then as many like it as these allow.
-- After an entry with a size it reads one at a time: the next one may be far larger.
local function take(i, tokens)
  local count = 1
  while tokens > 0 and bytes_left > 0 and left[i] > 0 do
    count = math.min(count, entries_left, share[i], 32)
    if i > 1 then
      count = math.min(count, bulk_entries_left)
    end
    if count < 1 then
      return
    end
    local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', KEYS[i], '>')
    if not read then
      left[i] = 0  -- the computed number may be higher than the real one
      return
    end
    for _, entry in ipairs(read[1][2]) do
      lanes[i][#lanes[i] + 1] = entry
      left[i], share[i] = left[i] - 1, share[i] - 1
      entries_left, bulk_entries_left = entries_left - 1, bulk_entries_left - 1
      local cost, num_bytes, is_sized = measure_entry(entry[2])
      tokens, tokens_left, bulk_tokens_left = tokens - cost, tokens_left - cost, bulk_tokens_left - cost
      bytes_left = bytes_left - num_bytes
      count = is_sized and 1 or math.max(1, math.floor(math.min(tokens / cost, bytes_left / math.max(1, num_bytes))))
    end
  end
end

for i = 2, #KEYS do
  take(i, math.min(tonumber(bulk_owed), tokens_left))
end
take(1, tokens_left)
for i = 2, #KEYS do
  take(i, math.min(tokens_left, bulk_tokens_left))
end
return {now, lanes, left}
