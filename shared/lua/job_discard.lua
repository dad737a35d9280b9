-- Job discard: removes an upload and what it reserves. A job that was created is not changed.
--
-- KEYS[1]   the job      KEYS[2] hash of what jobs are owed      KEYS[3] hash of uploads      KEYS[4] tenants hash
-- ARGV
--   job_id    id of the job
--   limits    limits of its tenant (see tenant_limits.lua), or "" for none
--   fraction  part of its tokens that the tenant gets back
-- Also deletes the keys beside the job, of the same slot.
--
-- Returns 1.
local job_id, limits, fraction = unpack(ARGV, 1, 3)
local status = redis.call('HGET', KEYS[1], 'status')
if status and status ~= 'uploading' then
  return 1
end
for _, part in ipairs({'', ':in', ':todo', ':out', ':failed'}) do
  redis.call('UNLINK', KEYS[1] .. part)
end
local upload = find_upload(KEYS[3], job_id)
if upload then
  release_upload(KEYS[2], KEYS[3], job_id, upload)
end
if upload and upload.tokens > 0 and limits ~= '' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  refund(load_tenant(KEYS[4], upload.tenant, limits, now), math.floor(upload.tokens * fraction), upload.day)
  write_tenants(KEYS[4], now)
end
return 1
