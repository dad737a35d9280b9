-- Lease release: whoever holds slots of a pool gives them back, or no longer waits; who waits longest is woken.
--
-- KEYS[1]   zset of who waits, by when they asked first      KEYS[2] hash of when they asked last      KEYS[3..] slots
-- ARGV[1]   owner      ARGV[2] what the keys begin with on which others wait
-- ARGV[3]   lifetime of a wake-up that nobody reads, ms
--
-- Returns the number of slots that were given back: those of others are left alone.
local given = 0
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
for i = 3, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and string.match(held, '^(.*) %d+$') == ARGV[1] then
    redis.call('DEL', KEYS[i])
    given = given + 1
  end
end
local first = given > 0 and redis.call('ZRANGE', KEYS[1], 0, 0)[1]
if first then
  redis.call('RPUSH', ARGV[2] .. first, '')
  redis.call('PEXPIRE', ARGV[2] .. first, ARGV[3])
end
return given
