-- Job cancel: ends a job whose result nobody wants, and takes back what of it waits.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] what jobs are owed      KEYS[4] results stream
-- KEYS[5..] lanes, in the order of keys.LANES
-- ARGV[1]   what keys of jobs begin with      ARGV[2] id      ARGV[3] group      ARGV[4] most results kept in the stream
--
-- Returns the job's status before, or nil if there is no such job. One that has ended stays as it is.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local of = {open = KEYS[2], owed = KEYS[3], results = KEYS[4], prefix = ARGV[1], group = ARGV[3], most = ARGV[4]}
of.lanes = {unpack(KEYS, 5)}
local job = ARGV[1] .. ARGV[2]
local status = redis.call('HGET', job, 'status')
redis.call('ZREM', of.open, '')  -- allowed when memory is full, after which the rest is, too
if status == 'queued' or status == 'running' then
  withdraw(of, ARGV[2])
  redis.call('UNLINK', job .. ':out')
  end_job(of, ARGV[2], 'cancelled', now)
  write_count(KEYS[1], 1)
end
return status
