-- Job cancel: ends a job whose result is no longer wanted, and removes its entries from the lane. Of a job that has ended,
-- it removes the results, whose part of the bounds is free at once. With if_expired, ends a job only if its time is over,
-- as expired, and keeps the results that it has. With if_open, a job that has ended stays as it is.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] hash of what jobs are owed      KEYS[4] results stream
-- KEYS[5]   jobs that are kept      KEYS[6..] lanes, in the order of keys.LANES
-- ARGV: JobCancelArguments
--   job_prefix   prefix of the keys of jobs
--   job_id       id of the job
--   group        consumer group
--   max_results  maximum results kept in the results stream
--   if_expired   1: only if its time is over
--   if_open      1: only if it has not ended
--
-- Returns the job's previous status, or nil if there is no such job, or none whose time is over.
local job_prefix, job_id, group, max_results, if_expired, if_open = unpack(ARGV, 1, 6)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs = {open = KEYS[2], owed = KEYS[3], results = KEYS[4], kept = KEYS[5], prefix = job_prefix, group = group,
              max_results = max_results, lanes = {unpack(KEYS, 6)}}
local job_key = job_prefix .. job_id
local status = redis.call('HGET', job_key, 'status')
local is_open = status == 'queued' or status == 'running'
if if_expired == '1' and not (is_open and now >= tonumber(redis.call('HGET', job_key, 'expires_ms'))) then
  return false
end
if if_open == '1' and not is_open then
  return status
end
redis.call('ZREM', jobs.open, '')  -- Redis allows this when memory is full, and after it allows the other writes
if is_open then
  withdraw(jobs, job_id)
  if if_expired == '0' then
    redis.call('UNLINK', job_key .. ':out', job_key .. ':failed')
  end
  end_job(jobs, job_id, if_expired == '1' and 'expired' or 'cancelled', now)
  write_counts(KEYS[1], 1)
elseif status == 'done' or status == 'failed' or status == 'expired' then
  redis.call('UNLINK', job_key .. ':out', job_key .. ':failed')
  redis.call('HSET', job_key, 'status', 'deleted')
  local bytes, tenant = unpack(redis.call('HMGET', job_key, 'kept_bytes', 'tenant'))
  if bytes then
    release_results(jobs.owed, jobs.kept, kept_member(job_id, bytes, tenant or ''))
  end
end
return status
