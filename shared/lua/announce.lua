-- Announce: a worker says which queue it serves, so that gateways find it.
--
-- KEYS[1]   zset of all queues
-- ARGV[1]   queue      ARGV[2] how long it is told of, ms
--
-- Returns nothing of interest.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The removal comes first: it is allowed when memory is full, after which the rest is too.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - ARGV[2]))
redis.call('ZADD', KEYS[1], now, ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
