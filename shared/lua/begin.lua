-- Begin: writes down which entries' run begins.
--
-- KEYS[1]   begun entries of a worker
-- ARGV[1]   their names, <lane index>/<entry id>, with spaces between      ARGV[2] lifetime, ms
--
-- Returns OK. DEL comes first: it is allowed when memory is full, after which SET is too.
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
