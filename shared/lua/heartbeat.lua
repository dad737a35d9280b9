-- Heartbeat: a worker shows that it is alive.
--
-- KEYS[1]   its heartbeat      KEYS[2] zset of workers      KEYS[3] zset of workers on standby
-- ARGV: HeartbeatArguments
--   worker          the worker
--   heartbeat       its heartbeat, as JSON
--   ttl_ms          lifetime of the heartbeat
--   workers_ttl_ms  lifetime of the zsets
--   standby         1 if the worker takes no work: it waits for a GPU, or its model fails
--
-- Returns {now_ms, live workers that are not on standby}.
local worker, heartbeat, ttl_ms, workers_ttl_ms, standby = unpack(ARGV, 1, 5)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The removal comes first: Redis allows it when memory is full, and after it allows the other writes of the script.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%d', now - workers_ttl_ms))
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('(%d', now - workers_ttl_ms))
redis.call('SET', KEYS[1], heartbeat, 'PX', ttl_ms)
redis.call('ZADD', KEYS[2], now, worker)
redis.call('PEXPIRE', KEYS[2], workers_ttl_ms)
if standby == '1' then
  redis.call('ZADD', KEYS[3], now, worker)
  redis.call('PEXPIRE', KEYS[3], workers_ttl_ms)
else
  redis.call('ZREM', KEYS[3], worker)
end
local since = string.format('%d', now - ttl_ms)
return {now, redis.call('ZCOUNT', KEYS[2], since, '+inf') - redis.call('ZCOUNT', KEYS[3], since, '+inf')}
