-- Lease take: gives a free slot of a pool of GPUs to whoever asks; if others may not overtake, to who asked first.
--
-- KEYS[1]   fence      KEYS[2] zset of who waits, by when they asked first      KEYS[3] hash of when they asked last
-- KEYS[4..] slots that would do, in order of preference
-- ARGV[1]   owner      ARGV[2] lifetime of the lease, ms
-- ARGV[3]   ms without asking after which nobody counts as waiting; 0: nobody waits, the first to ask has it
--
-- A slot that is the owner's already, as after a reply that was lost, is given again with the fence that it has.
-- Fences grow, also when Redis has lost its data: they are at least its clock, in µs.
-- Returns {index of the slot among those given (from 0), fence}, or {-1, ms until one of them runs out at the latest}.
local owner, ttl, patience = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local slot, free, soonest = 0, 0, ttl
-- A removal comes first: it is allowed when memory is full, after which the rest is too.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(0')
for i = 4, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if not held then
    free = free + 1
    slot = slot == 0 and i or slot
  elseif string.match(held, '^(.*) %d+$') == owner then
    redis.call('PEXPIRE', KEYS[i], ttl)
    return {i - 4, tonumber(string.match(held, '%d+$'))}
  else
    soonest = math.min(soonest, math.max(0, redis.call('PTTL', KEYS[i])))
  end
end
local ahead = 0
if patience > 0 then
  redis.call('ZADD', KEYS[2], 'NX', now, owner)
  redis.call('HSET', KEYS[3], owner, now)
  for _, other in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if other == owner then
      break
    end
    if now - (tonumber(redis.call('HGET', KEYS[3], other)) or 0) > patience then
      redis.call('ZREM', KEYS[2], other)
      redis.call('HDEL', KEYS[3], other)
    else
      ahead = ahead + 1
    end
  end
  redis.call('PEXPIRE', KEYS[2], ttl + patience)
  redis.call('PEXPIRE', KEYS[3], ttl + patience)
end
if free <= ahead then
  return {-1, soonest}
end
local fence = math.max(tonumber(redis.call('GET', KEYS[1]) or 0) + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[1], string.format('%.0f', fence))
redis.call('SET', KEYS[slot], string.format('%s %.0f', owner, fence), 'PX', ttl)
redis.call('ZREM', KEYS[2], owner)
redis.call('HDEL', KEYS[3], owner)
return {slot - 4, fence}
