-- Mark begun: records which entries the worker begins to run.
--
-- KEYS[1]   begun entries of a worker
-- ARGV
--   names     <lane index>/<entry id> of each entry, separated by spaces
--   ttl_ms    lifetime of the record
--
-- Returns OK. DEL comes first: Redis allows it when memory is full, and after it allows SET too.
local names, ttl_ms = unpack(ARGV, 1, 2)
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], names, 'PX', ttl_ms)
