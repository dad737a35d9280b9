-- Job put: brings some inputs of a job that is not there yet.
--
-- KEYS[1]   the job
-- ARGV[1]   ms after which they are gone, unless more come or the job is made
-- ARGV[2]   number of entries; then for each: position, element of `:in` (see job_lanes.lua)
--           after them, for each input that cannot be run: position, reply
-- Also writes the keys that stand beside the job, of the same slot.
--
-- Returns how many entries and how many replies are there.
local entries, replies = KEYS[1] .. ':in', KEYS[1] .. ':out'
local last = 2 + 2 * ARGV[2]
for i = 3, last, 2 do
  if redis.call('HSET', entries, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':todo', ARGV[i])
  end
end
for i = last + 1, #ARGV, 2 do
  if redis.call('HSET', replies, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':failed', ARGV[i])
  end
end
redis.call('HSET', KEYS[1], 'status', 'uploading')
for _, part in ipairs({'', ':in', ':todo', ':out', ':failed'}) do
  redis.call('PEXPIRE', KEYS[1] .. part, ARGV[1])
end
return {redis.call('HLEN', entries), redis.call('HLEN', replies)}
