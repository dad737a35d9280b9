-- Job create: creates a job from the uploaded inputs, and moves the first of them into its lane.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] hash of what jobs are owed      KEYS[4] epoch
-- KEYS[5]   all jobs      KEYS[6] record of the idempotency key, or the job where there is none
-- KEYS[7]   hash of uploads      KEYS[8..] lanes, in the order of keys.LANES
-- ARGV: JobCreateArguments
--   job_prefix        prefix of the keys of jobs
--   job_id            id of the job
--   num_entries       uploaded entries
--   num_failures      uploaded replies, each for consecutive inputs that cannot be run
--   num_failed        inputs that cannot be run, fewer than all
--   num_inputs        inputs, including those that cannot be run
--   per_entry         maximum inputs in an entry
--   owner             owner
--   tenant            tenant, or ""
--   lane              index of the lane, from 0
--   timeout_ms        how long until the job expires
--   ttl_ms            how long its results are kept
--   entry_grace_ms    how long its entries outlive it
--   digest            digest of the request, or "" without an idempotency key
--   result_bytes      bytes of the result of each input
--   memory_ratio      share of maxmemory that may be used, including these results
--   max_lane_entries  maximum entries of jobs in the lanes
--   max_lane_tokens   maximum tokens of jobs in the lanes
--   max_lane_bytes    about the maximum bytes of jobs in the lanes; one entry may exceed it
--   traceparent       traceparent, or ""
--   op                operation on each input
--   max_inline_bytes  maximum bytes of results in the results stream; 0: always a link; -1: neither
--
-- Returns {"ok"}; {"same", id, "1" or "0": whether the requests are equal} if the idempotency key is that of a job;
-- {"lost"} if not all inputs are there; {"full"} if the results would not fit into memory.
-- The upload stays, except after "ok". A call that is repeated (its reply was lost) returns "ok" again, and changes
-- nothing.
local job_prefix, job_id, num_entries, num_failures, num_failed, num_inputs, per_entry, owner, tenant, lane,
      timeout_ms, ttl_ms, entry_grace_ms, digest, result_bytes, memory_ratio, max_lane_entries, max_lane_tokens,
      max_lane_bytes, traceparent, op, max_inline_bytes = unpack(ARGV, 1, 22)
local MAX_LISTED_JOBS = 2000
local job_key = job_prefix .. job_id
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs = {open = KEYS[2], owed = KEYS[3], prefix = job_prefix, lanes = {unpack(KEYS, 8)}}

local parts = {'', ':in', ':todo', ':out', ':failed'}
for i, part in ipairs(parts) do
  parts[i] = job_key .. part
end

local status = redis.call('HGET', job_key, 'status')
if status and status ~= 'uploading' then
  return {'ok'}
end
if digest ~= '' then
  local holder, holder_digest = find_key_holder(KEYS[6], job_prefix)
  if holder then
    return {'same', holder, holder_digest == digest and '1' or '0'}
  end
end
local upload = find_upload(KEYS[7], job_id)
if not upload or redis.call('HLEN', job_key .. ':in') ~= tonumber(num_entries)
   or redis.call('HLEN', job_key .. ':out') ~= tonumber(num_failures) then
  return {'lost'}
end

local inputs, failed = tonumber(num_inputs), tonumber(num_failed)
local owed = tonumber(redis.call('HGET', KEYS[3], 'inputs') or 0) + inputs - failed
local memory = redis.pcall('INFO', 'memory')
if memory.err then  -- some services refuse it
  memory = ''
end
local used, max = string.match(memory, 'used_memory:(%d+)'), tonumber(string.match(memory, 'maxmemory:(%d+)') or 0)
local no_memory = used and max > 0 and used + owed * result_bytes > max * memory_ratio
if no_memory then
  return {'full'}
end

local expires = now + timeout_ms
remove_upload(KEYS[3], KEYS[7], job_id, upload)
redis.call('HSET', job_key, 'status', 'queued', 'owner', owner, 'tenant', tenant, 'lane', lane, 'n', inputs,
           'per_entry', per_entry, 'op', op, 'max_inline_bytes', max_inline_bytes, 'done', 0, 'failed', failed,
           'created_ms', string.format('%d', now), 'expires_ms', string.format('%d', expires), 'ttl_ms', ttl_ms,
           'bytes', upload.bytes, 'held_inputs', upload.inputs, 'held_bytes', upload.bytes,
           'held_results', string.format('%.0f', upload.results),
           'entry_deadline_ms', string.format('%d', expires + entry_grace_ms))
if traceparent ~= '' then
  redis.call('HSET', job_key, 'traceparent', traceparent)
end
for _, key in ipairs(parts) do
  redis.call('PERSIST', key)
end
if not redis.call('GET', KEYS[4]) then
  redis.call('SET', KEYS[4], time[1] .. '.' .. time[2])
end
if digest ~= '' then
  redis.call('HSET', KEYS[6], 'id', job_id, 'digest', digest)
  redis.call('PEXPIRE', KEYS[6], string.format('%d', timeout_ms + ttl_ms))
  -- Without the prefix of the key: with a value of over 64 bytes, the hash would take twice the memory.
  redis.call('HSET', job_key, 'idempotency', string.match(KEYS[6], '[^:]*$'))
end
redis.call('ZADD', KEYS[5], string.format('%d', now), job_id)
redis.call('ZREMRANGEBYRANK', KEYS[5], 0, -MAX_LISTED_JOBS - 1)  -- this list is for people, who look at the latest jobs
redis.call('HINCRBY', KEYS[3], 'inputs', inputs - failed)
-- The job starts level with the job that has received the fewest tokens.
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
redis.call('ZADD', KEYS[2], first[2] and first[2] ~= 'inf' and first[2] or 0, job_id)
feed_lanes(jobs, time, tonumber(max_lane_entries), tonumber(max_lane_tokens), tonumber(max_lane_bytes))
write_counts(KEYS[1], 1)
return {'ok'}
