-- Lease acquire: gives a free slot of a pool of GPUs to the owner that requests it, or, with a waiter_ttl_ms, to
-- the first waiter.
--
-- KEYS[1]   fence
-- KEYS[2]   zset of the waiters, by the time of their first request
-- KEYS[3]   hash of the time of each waiter's last request
-- KEYS[4..] acceptable slots, in order of preference
-- ARGV
--   owner          the owner
--   ttl_ms         lifetime of the lease
--   waiter_ttl_ms  a waiter that has not repeated its request for this time no longer counts; 0: no waiters, the next
--                  request gets the slot
--
-- If the owner holds a slot already, as after a reply that was lost, it gets that slot again under the same fence.
-- Fences grow, even after Redis has lost its data: they are at least its clock, in µs.
-- Returns {index of the slot among those given (from 0), fence}, or {-1, ms after which one of them expires at the
-- latest}.
local owner, ttl_ms, waiter_ttl_ms = unpack(ARGV, 1, 3)
local ttl, waiter_ttl = tonumber(ttl_ms), tonumber(waiter_ttl_ms)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local slot, num_free, soonest = 0, 0, ttl
-- A removal comes first: Redis allows it when memory is full, and after it allows the other writes of the script.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(0')
for i = 4, #KEYS do
  local lease = redis.call('GET', KEYS[i])
  if not lease then
    num_free = num_free + 1
    slot = slot == 0 and i or slot
  elseif string.match(lease, '^(.*) %d+$') == owner then
    redis.call('PEXPIRE', KEYS[i], ttl)
    return {i - 4, tonumber(string.match(lease, '%d+$'))}
  else
    soonest = math.min(soonest, math.max(0, redis.call('PTTL', KEYS[i])))
  end
end
local num_ahead = 0
if waiter_ttl > 0 then
  redis.call('ZADD', KEYS[2], 'NX', now, owner)
  redis.call('HSET', KEYS[3], owner, now)
  for _, other in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if other == owner then
      break
    end
    if now - (tonumber(redis.call('HGET', KEYS[3], other)) or 0) > waiter_ttl then
      redis.call('ZREM', KEYS[2], other)
      redis.call('HDEL', KEYS[3], other)
    else
      num_ahead = num_ahead + 1
    end
  end
  redis.call('PEXPIRE', KEYS[2], ttl + waiter_ttl)
  redis.call('PEXPIRE', KEYS[3], ttl + waiter_ttl)
end
if num_free <= num_ahead then
  return {-1, soonest}
end
local fence = math.max(tonumber(redis.call('GET', KEYS[1]) or 0) + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[1], string.format('%.0f', fence))
redis.call('SET', KEYS[slot], string.format('%s %.0f', owner, fence), 'PX', ttl)
redis.call('ZREM', KEYS[2], owner)
redis.call('HDEL', KEYS[3], owner)
return {slot - 4, fence}
