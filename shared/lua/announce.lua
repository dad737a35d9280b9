-- Announce: a worker publishes which queue it serves, so that gateways find it.
--
-- KEYS[1]   zset of all queues
-- ARGV
--   queue     name of the queue
--   ttl_ms    how long the announcement is valid
--
-- Returns 1 if the queue was not announced before, else 0.
local queue, ttl_ms = unpack(ARGV, 1, 2)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The removal comes first: Redis allows it when memory is full, and after it allows the other writes of the script.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - ttl_ms))
local new = redis.call('ZADD', KEYS[1], now, queue)
redis.call('PEXPIRE', KEYS[1], ttl_ms)
return new
