-- Job split: replaces a failed entry of a job by one entry for each of its inputs, so that only the inputs fail that
-- cannot be run.
--
-- KEYS[1]   hash of what jobs are owed      KEYS[2] lane
-- ARGV: JobSplitArguments
--   job_prefix  prefix of the keys of jobs
--   job_id      id of the job
--   group       consumer group
--   entry_id    stream id of the entry
--   position    its position in the job
--   num_inputs  number of inputs that follow
-- then, num_inputs times, JobInputRow
--   cost        estimated tokens
--   body        the encoded body
--
-- Returns whether it was done (1 or 0): the entry may have been answered, or its job cancelled, meanwhile. The costs add
-- up to that of the entry, so the backlog does not change.
local job_prefix, job_id, group, entry_id, position, num_inputs = unpack(ARGV, 1, 6)
local FIRST_ROW, ROW_SIZE = 7, 2
local jobs = {prefix = job_prefix, lanes = {}}
local key = job_prefix .. job_id
redis.call('XACK', KEYS[2], group, entry_id)
position = tonumber(position)
if redis.call('XDEL', KEYS[2], entry_id) ~= 1 or redis.call('HGET', key .. ':fed', position) ~= entry_id then
  return 0
end
local num_bytes = -redis.call('HSTRLEN', key .. ':in', position)
local job = read_job(jobs, job_id)
if not job then
  return 0
end
jobs.lanes[job.lane + 1] = KEYS[2]
local time = redis.call('TIME')
for i = 0, num_inputs - 1 do
  local at = FIRST_ROW + ROW_SIZE * i
  local cost, body = unpack(ARGV, at, at + 1)
  local element = '1 ' .. cost .. ' ' .. body
  num_bytes = num_bytes + #element
  redis.call('HSET', key .. ':in', position + i, element)
  add_to_lane(jobs, time, job_id, job, string.format('%d', position + i), '1', cost, body)
end
redis.call('HINCRBY', KEYS[1], 'entries', num_inputs - 1)
redis.call('HINCRBY', KEYS[1], 'bytes', num_bytes)
return 1
