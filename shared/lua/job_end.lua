-- Prepended, after job_results.lua and job_reservations.lua, to each script that ends jobs, or stores their results (see job_lanes.lua).
--
-- `jobs` holds what these functions work on: open, owed, kept and results (keys), prefix (of job keys), max_results
-- (in the results stream), and, for `store_reply`, the revision of the model that gave the results.

-- Ends a job: adds it to the results stream, and lets its keys expire after its ttl_ms.
local function end_job(jobs, id, status, now)
  local key = jobs.prefix .. id
  redis.call('HSET', key, 'status', status, 'finished_ms', now)
  redis.call('ZREM', jobs.open, id)
  local fields = redis.call('HMGET', key, 'n', 'done', 'failed', 'ttl_ms', 'op', 'owner', 'max_inline_bytes',
                            'tenant', 'held_inputs', 'held_bytes', 'idempotency', 'held_results', 'stored_bytes')
  if fields[9] then  -- a gateway of an earlier version has reserved nothing
    local held = {jobs = -1, job_inputs = -fields[9], job_bytes = -fields[10], result_bytes = -(fields[12] or 0)}
    add_amounts(jobs.owed, fields[8], held)
  end
  if status ~= 'cancelled' then  -- a cancelled job has no results
    local bytes = JOB_BYTES + (fields[13] or 0)
    redis.call('HSET', key, 'kept_bytes', bytes)
    keep_results(jobs.owed, jobs.kept, id, fields[8] or '', bytes, now + fields[4])
  end
  if jobs.max_results ~= '0' then
    local op = fields[5] or 'embed'
    redis.call('XADD', jobs.results, 'MAXLEN', jobs.max_results, '*', 'id', id, 'status', status, 'n', fields[1],
               'done', fields[2], 'failed', fields[3], 'op', op, 'owner', fields[6] or '',
               unpack(result_fields(jobs.prefix, id, status, op, fields[1], fields[7])))
  end
  redis.call('UNLINK', key .. ':in', key .. ':todo', key .. ':fed')
  for _, each in ipairs({key, key .. ':out', key .. ':failed'}) do
    redis.call('PEXPIRE', each, fields[4])
  end
  if fields[11] then  -- a worker whose Redis user is of an earlier version may not change this key
    redis.pcall('PEXPIRE', string.gsub(jobs.prefix, 'job:$', 'idempotency:') .. fields[11], fields[4])
  end
end

-- Stores the reply to an entry of a job. Of its n inputs, `counts.failed` failed, and `counts.truncated` were cut to the
-- model's maximum length. An entry that no longer belongs to the job changes nothing.
local function store_reply(jobs, id, entry, position, n, cost, counts, reply, now)
  local key = jobs.prefix .. id
  local status, revisions = unpack(redis.call('HMGET', key, 'status', 'revisions'))
  if not status or redis.call('HGET', key .. ':fed', position) ~= entry then
    return
  end
  redis.call('HDEL', key .. ':fed', position)
  redis.call('HINCRBY', jobs.owed, 'bytes', 0 - redis.call('HSTRLEN', key .. ':in', position))
  redis.call('HDEL', key .. ':in', position)
  redis.call('HSET', key .. ':out', position, reply)
  redis.call('HINCRBY', key, 'stored_bytes', #reply + REPLY_BYTES)
  redis.call('HINCRBY', jobs.owed, 'inputs', 0 - n)
  redis.call('HINCRBY', jobs.owed, 'lane_inputs', 0 - n)
  redis.call('HINCRBY', jobs.owed, 'entries', -1)
  redis.call('HINCRBY', jobs.owed, 'tokens', 0 - cost)
  if counts.failed > 0 then
    redis.call('HINCRBY', key, 'failed', counts.failed)
    redis.call('RPUSH', key .. ':failed', position)
  end
  if counts.truncated > 0 then
    redis.call('HINCRBY', key, 'truncated', counts.truncated)
  end
  redis.call('HINCRBY', key, 'done', n - counts.failed)
  local is_listed = string.find(' ' .. (revisions or '') .. ' ', ' ' .. jobs.revision .. ' ', 1, true)
  if counts.failed < n and jobs.revision ~= '' and not is_listed then
    redis.call('HSET', key, 'revisions', revisions and revisions .. ' ' .. jobs.revision or jobs.revision)
  end
  if status == 'queued' then
    redis.call('HSET', key, 'status', 'running', 'started_ms', now)
  end
  local fields = redis.call('HMGET', key, 'n', 'done', 'failed')
  if fields[2] + fields[3] >= tonumber(fields[1]) then
    end_job(jobs, id, tonumber(fields[2]) == 0 and 'failed' or 'done', now)
  end
end
