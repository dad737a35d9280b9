-- Job forget: removes what was put of a job that is not made. One that was made stays as it is.
--
-- KEYS[1]   the job
-- Also deletes the keys that stand beside it, of the same slot.
--
-- Returns whether there was no such job (1 or 0).
local status = redis.call('HGET', KEYS[1], 'status')
if status and status ~= 'uploading' then
  return 0
end
for _, part in ipairs({'', ':in', ':todo', ':out', ':failed'}) do
  redis.call('UNLINK', KEYS[1] .. part)
end
return 1
