-- Cancel: removes entries whose request no longer waits for an answer.
--
-- KEYS[1]   backlog hash
-- KEYS[2 .. 1+L]  the L lanes; after them the reply keys to wake
-- ARGV: CancelArguments
--   group        consumer group
--   num_lanes    number of lanes L
--   wake_ttl_ms  lifetime of a wake-up element
--   num_entries  number of entries that follow
-- then, num_entries times, Ref
--   lane           index of the lane, from 0
--   entry_id       stream id of the entry
--   n              inputs
--   cost           estimated tokens
--   counted_bytes  bytes that count against the bound of the queue
--
-- Returns the number of entries that were still there.
-- A waiter that blocks on its reply key is never cancelled in the middle of its command: an empty element wakes it, and
-- it is free at once.
local group, num_lanes, wake_ttl_ms, num_entries = unpack(ARGV, 1, 4)
local FIRST_ROW, ROW_SIZE = 5, 5
local num_removed = 0
for e = 0, num_entries - 1 do
  local at = FIRST_ROW + ROW_SIZE * e
  local lane, entry_id, n, cost, counted_bytes = unpack(ARGV, at, at + 4)
  local lane_key = KEYS[2 + lane]
  if redis.call('XDEL', lane_key, entry_id) == 1 then
    -- If the entry was claimed, its pending record goes too. The group may not exist.
    redis.pcall('XACK', lane_key, group, entry_id)
    num_removed = num_removed + 1
    count_entry(lane, n, cost, counted_bytes)
  end
end
write_counts(KEYS[1], -1)
for i = 2 + num_lanes, #KEYS do
  redis.call('RPUSH', KEYS[i], '')
  redis.call('PEXPIRE', KEYS[i], wake_ttl_ms)
end
return num_removed
