-- Renew: claims entries again that a worker still owns, so that they do not count as abandoned.
--
-- KEYS      lanes
-- ARGV: RenewArguments
--   group        consumer group
--   consumer     the worker
--   num_entries  number of entries that follow
-- then, num_entries times, HeldRow
--   lane         index of the lane, from 0
--   entry_id     stream id of the entry
--   attempts     runs that began and did not end
--
-- Returns {now_ms, {1 or 0 for each entry: whether it is still owned}, number of the others that are still in a lane}.
-- An entry that is no longer owned was cancelled, answered by another worker, or taken over by one: it need not be run.
-- One that is still in its lane may also have lost its group, and be delivered again to any worker, this one included.
-- RETRYCOUNT holds 1 + attempts: Redis sets it to 1 when an entry is delivered.
local group, consumer, num_entries = unpack(ARGV, 1, 3)
local FIRST_ROW, ROW_SIZE = 4, 3
local time = redis.call('TIME')
local owned, num_unowned_in_lane = {}, 0
for e = 1, tonumber(num_entries) do
  local at = FIRST_ROW + ROW_SIZE * (e - 1)
  local lane, entry_id, attempts = unpack(ARGV, at, at + 2)
  local lane_key = KEYS[1 + lane]
  local pending = redis.pcall('XPENDING', lane_key, group, entry_id, entry_id, 1, consumer)
  if pending.err then
    return pending
  end
  owned[e] = 0
  if pending[1] then
    redis.call('XCLAIM', lane_key, group, consumer, 0, entry_id, 'RETRYCOUNT', 1 + attempts, 'JUSTID')
    owned[e] = 1
  else
    num_unowned_in_lane = num_unowned_in_lane + #redis.call('XRANGE', lane_key, entry_id, entry_id)
  end
end
return {time[1] * 1000 + math.floor(time[2] / 1000), owned, num_unowned_in_lane}
