-- Lease release: an owner gives back the slots that it holds, or stops waiting; the longest waiter is woken.
--
-- KEYS[1]   zset of the waiters, by the time of their first request
-- KEYS[2]   hash of the time of each waiter's last request      KEYS[3..] slots
-- ARGV
--   owner        the owner
--   wake_prefix  prefix of the keys on which waiters block
--   wake_ttl_ms  lifetime of a wake-up element that is not read
--
-- Returns the number of slots that were given back: slots of other owners are not changed.
local owner, wake_prefix, wake_ttl_ms = unpack(ARGV, 1, 3)
local num_released = 0
redis.call('ZREM', KEYS[1], owner)
redis.call('HDEL', KEYS[2], owner)
for i = 3, #KEYS do
  local lease = redis.call('GET', KEYS[i])
  if lease and string.match(lease, '^(.*) %d+$') == owner then
    redis.call('DEL', KEYS[i])
    num_released = num_released + 1
  end
end
local first = num_released > 0 and redis.call('ZRANGE', KEYS[1], 0, 0)[1]
if first then
  redis.call('RPUSH', wake_prefix .. first, '')
  redis.call('PEXPIRE', wake_prefix .. first, wake_ttl_ms)
end
return num_released
