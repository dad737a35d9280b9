-- Job discard: removes the uploaded inputs of a job that was not created. A job that was created is not changed.
--
-- KEYS[1]   the job
-- Also deletes the keys beside it, of the same slot.
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
