-- Heartbeat: a worker says that it lives.
--
-- KEYS[1]   its heartbeat      KEYS[2] zset of workers      KEYS[3] zset of those on standby
-- ARGV[1]   worker      ARGV[2] heartbeat, JSON      ARGV[3] its lifetime, ms      ARGV[4] lifetime of the zsets, ms
-- ARGV[5]   1 if it is on standby: it waits for a GPU, and takes no work
--
-- Returns {now_ms, live workers that are not on standby}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The removal comes first: it is allowed when memory is full, after which the rest is too.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%d', now - ARGV[4]))
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('(%d', now - ARGV[4]))
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if ARGV[5] == '1' then
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
else
  redis.call('ZREM', KEYS[3], ARGV[1])
end
local since = string.format('%d', now - ARGV[3])
return {now, redis.call('ZCOUNT', KEYS[2], since, '+inf') - redis.call('ZCOUNT', KEYS[3], since, '+inf')}
