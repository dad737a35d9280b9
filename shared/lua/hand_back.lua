-- Hand back: releases entries that were claimed and not begun, for the next reclaim.
--
-- KEYS      lanes
-- ARGV: HandBackArguments
--   group              consumer group
--   consumer           the worker that releases them
--   released_consumer  the consumer that holds them meanwhile
--   idle_ms            idle time to set: large, so that the next reclaim takes them
--   num_entries        number of entries that follow
-- then, num_entries times, HeldRow
--   lane               index of the lane, from 0
--   entry_id           stream id of the entry
--   attempts           runs that began and did not end
--
-- Returns the number of entries released. Entries that this worker no longer owns are not changed.
local group, consumer, released_consumer, idle_ms, num_entries = unpack(ARGV, 1, 5)
local FIRST_ROW, ROW_SIZE = 6, 3
local num_released = 0
for e = 0, num_entries - 1 do
  local at = FIRST_ROW + ROW_SIZE * e
  local lane, entry_id, attempts = unpack(ARGV, at, at + 2)
  local lane_key = KEYS[1 + lane]
  local pending = redis.pcall('XPENDING', lane_key, group, entry_id, entry_id, 1, consumer)
  if not pending.err and pending[1] then
    redis.call('XCLAIM', lane_key, group, released_consumer, 0, entry_id, 'IDLE', idle_ms, 'RETRYCOUNT', 1 + attempts,
               'JUSTID')
    num_released = num_released + 1
  end
end
return num_released
