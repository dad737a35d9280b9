-- Job create: makes a job of the inputs that were put, and brings the first of them into its lane.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] what jobs are owed      KEYS[4] results stream
-- KEYS[5]   epoch      KEYS[6] all jobs      KEYS[7] where the idempotency key is remembered, or the job for none
-- KEYS[8]   tenants hash      KEYS[9..] lanes, in the order of keys.LANES
-- ARGV[1]   what keys of jobs begin with      ARGV[2] id      ARGV[3] entries, ARGV[4] replies that were put
-- ARGV[5]   inputs, of which as many cannot be run as there are replies      ARGV[6] most inputs in an entry
-- ARGV[7]   owner      ARGV[8] tenant or ""      ARGV[9] lane index (from 0)
-- ARGV[10]  ms until it expires      ARGV[11] ms that its results are kept
-- ARGV[12]  ms that its last entries outlive it
-- ARGV[13]  digest of what was asked for, or "" without an idempotency key
-- ARGV[14]  most inputs that may be owed, ARGV[15] bytes of each one's result
-- ARGV[16]  share of maxmemory that may be used, with these
-- ARGV[17]  most entries, ARGV[18] most tokens of jobs in the lanes      ARGV[19] most results kept in the stream
-- ARGV[20]  tokens of all inputs      ARGV[21] the tenant's limits or "" for none (see tenants.lua)
-- ARGV[22]  traceparent or ""
--
-- Returns {"ok"}; {"same", id, "1" or "0": whether the same was asked for} when the idempotency key is known, and its job
-- still is;
-- {"lost"} when not all is there; {"full"} when too much is owed; {"limited", ms} for one that its tenant may have in so
-- long.
-- What was put stays there, but for "same" and "lost". A call that is repeated (its reply was lost) returns "ok" again, and changes nothing.
local MOST_OPEN = 2000  -- so many jobs may be open: each is looked after once a second
local id, job = ARGV[2], ARGV[1] .. ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local of = {open = KEYS[2], owed = KEYS[3], results = KEYS[4], prefix = ARGV[1], most = ARGV[19]}
of.lanes = {unpack(KEYS, 9)}

local parts = {'', ':in', ':todo', ':out', ':failed'}
for i, part in ipairs(parts) do
  parts[i] = job .. part
end

local status = redis.call('HGET', job, 'status')
if status and status ~= 'uploading' then
  return {'ok'}
end
if ARGV[13] ~= '' then
  local known = redis.call('HMGET', KEYS[7], 'id', 'digest')
  if known[1] and redis.call('EXISTS', ARGV[1] .. known[1]) == 1 then
    redis.call('UNLINK', unpack(parts))
    return {'same', known[1], known[2] == ARGV[13] and '1' or '0'}
  end
end
if redis.call('HLEN', job .. ':in') ~= tonumber(ARGV[3]) or redis.call('HLEN', job .. ':out') ~= tonumber(ARGV[4]) then
  redis.call('UNLINK', unpack(parts))
  return {'lost'}
end

local n, failed = tonumber(ARGV[5]), tonumber(ARGV[4])
local owed = tonumber(redis.call('HGET', KEYS[3], 'inputs') or 0) + n - failed
local memory = redis.call('INFO', 'memory')
local used, most = string.match(memory, 'used_memory:(%d+)'), tonumber(string.match(memory, 'maxmemory:(%d+)'))
local no_memory = most > 0 and used + owed * ARGV[15] > most * ARGV[16]
if no_memory or owed > tonumber(ARGV[14]) or redis.call('ZCARD', KEYS[2]) >= MOST_OPEN then
  return {'full'}
end

local cost, left, limits = tonumber(ARGV[20]), nil, nil
if ARGV[21] ~= '' then
  left, limits = tenant_of(KEYS[8], ARGV[8], ARGV[21], now)
  local wait = wait_of(left, limits, cost, now)
  if wait > 0 then
    return {'limited', wait}
  end
  spend(left, limits, cost, false)  -- not of the share of the first lane: what a job has there is paced
end

local expires = now + ARGV[10]
redis.call('HSET', job, 'status', 'queued', 'owner', ARGV[7], 'tenant', ARGV[8], 'lane', ARGV[9], 'n', n,
           'per_entry', ARGV[6], 'done', 0, 'failed', failed, 'created_ms', string.format('%d', now),
           'expires_ms', string.format('%d', expires), 'ttl_ms', ARGV[11],
           'entry_deadline_ms', string.format('%d', expires + ARGV[12]))
if ARGV[22] ~= '' then
  redis.call('HSET', job, 'traceparent', ARGV[22])
end
for _, key in ipairs(parts) do
  redis.call('PERSIST', key)
end
if not redis.call('GET', KEYS[5]) then
  redis.call('SET', KEYS[5], time[1] .. '.' .. time[2])
end
if ARGV[13] ~= '' then
  redis.call('HSET', KEYS[7], 'id', id, 'digest', ARGV[13])
  redis.call('PEXPIRE', KEYS[7], string.format('%d', ARGV[10] + ARGV[11]))
end
redis.call('ZADD', KEYS[6], string.format('%d', now), id)
redis.call('ZREMRANGEBYRANK', KEYS[6], 0, -MOST_OPEN - 1)  -- it is for people, who look at the last ones
write_tenants(KEYS[8], now)
if n == failed then
  end_job(of, id, 'failed', now)
  return {'ok'}
end
redis.call('HINCRBY', KEYS[3], 'inputs', n - failed)
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')  -- it begins as one that has had as little as any
redis.call('ZADD', KEYS[2], first[2] and first[2] ~= 'inf' and first[2] or 0, id)
feed(of, time, tonumber(ARGV[17]), tonumber(ARGV[18]))
write_count(KEYS[1], 1)
return {'ok'}
