-- Lease release: a holder gives its slot back, and who waits longest is woken.
--
-- KEYS[1]   slot      KEYS[2] zset of who waits, by when they asked first
-- ARGV[1]   owner      ARGV[2] fence      ARGV[3] what the keys begin with on which they wait
-- ARGV[4]   lifetime of a wake-up that nobody reads, ms
--
-- Returns 1, or 0: the slot was not held under this fence, and is left alone.
if redis.call('GET', KEYS[1]) ~= ARGV[1] .. ' ' .. ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1])
local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if first then
  redis.call('RPUSH', ARGV[3] .. first, '')
  redis.call('PEXPIRE', ARGV[3] .. first, ARGV[4])
end
return 1
