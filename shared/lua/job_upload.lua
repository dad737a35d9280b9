-- Job upload: stores inputs of a job that does not exist yet.
--
-- KEYS[1]   the job
-- ARGV: JobUploadArguments
--   ttl_ms       lifetime of the upload, unless more inputs come or the job is created
--   num_entries  number of entries that follow
-- then, num_entries times, JobElementRow
--   position     position of the entry's first input
--   element      element of `:in` (see job_lanes.lua)
-- then, to the end, JobReplyRow: each for consecutive inputs that cannot be run
--   position     position of the first of them
--   reply        the encoded error
-- Also writes the keys beside the job, of the same slot.
--
-- Returns the number of entries and of replies that are there.
local ttl_ms, num_entries = unpack(ARGV, 1, 2)
local entries, replies = KEYS[1] .. ':in', KEYS[1] .. ':out'
local first_reply = 3 + 2 * num_entries
for at = 3, first_reply - 1, 2 do
  local position, element = unpack(ARGV, at, at + 1)
  if redis.call('HSET', entries, position, element) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':todo', position)
  end
end
for at = first_reply, #ARGV, 2 do
  local position, reply = unpack(ARGV, at, at + 1)
  if redis.call('HSET', replies, position, reply) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':failed', position)
  end
end
redis.call('HSET', KEYS[1], 'status', 'uploading')
for _, part in ipairs({'', ':in', ':todo', ':out', ':failed'}) do
  redis.call('PEXPIRE', KEYS[1] .. part, ttl_ms)
end
return {redis.call('HLEN', entries), redis.call('HLEN', replies)}
