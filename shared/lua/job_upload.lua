-- Job upload: stores inputs of a job that does not exist yet, after it has reserved quota and room for them.
--
-- KEYS[1]   the job      KEYS[2] hash of what jobs are owed      KEYS[3] hash of uploads      KEYS[4] tenants hash
-- KEYS[5]   record of the idempotency key, or the job where there is none      KEYS[6] jobs that are kept
-- ARGV: JobUploadArguments
--   job_prefix        prefix of the keys of jobs
--   job_id            id of the job
--   ttl_ms            lifetime of the upload, unless more inputs come or the job is created
--   tenant            tenant, or ""
--   limits            limits of the tenant (see tenant_limits.lua), or "" for none
--   inputs            inputs that can run, of the whole upload with this call
--   bytes             bytes of all inputs and errors, of the whole upload with this call
--   tokens            tokens of all inputs, of the whole upload with this call
--   results           bytes expected of the results of all inputs, of the whole upload with this call
--   max_jobs          maximum jobs that have not ended, with uploads
--   max_inputs        maximum inputs of these
--   max_bytes         maximum bytes of these
--   max_upload_bytes  maximum bytes of uploads
--   max_result_bytes  maximum bytes of results, of these jobs and of those that are kept
--   tenant_share      share of each maximum for one tenant of weight 1 that is alone
--   num_entries       number of entries that follow
-- then, num_entries times, JobElementRow
--   position          position of the entry's first input
--   element           element of `:in` (see job_lanes.lua)
-- then, to the end, JobReplyRow: each for consecutive inputs that cannot be run
--   position          position of the first of them
--   reply             the encoded error
-- Also writes the keys beside the job, of the same slot, and reads the job of the idempotency key.
--
-- Returns {"ok"}, also if the job has been created since; {"known"} if there is a job of the idempotency key;
-- {"full"} if a maximum is reached; {"share"} if the tenant has its share of one; {"results_full"} and
-- {"results_share"} if it is that of results; {"limited", ms, limit} if the tenant may upload this after that time (see
-- wait_for in tenant_limits.lua). Only "ok" stores anything.
-- The amounts are those of the whole upload, so a call that is repeated (its reply was lost) reserves nothing twice.
local job_prefix, job_id, ttl_ms, tenant, limits, inputs, bytes, tokens, results, max_jobs, max_inputs, max_bytes,
      max_upload_bytes, max_result_bytes, tenant_share, num_entries = unpack(ARGV, 1, 16)
local FIRST_ROW = 17
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owed, uploads, kept = KEYS[2], KEYS[3], KEYS[6]
local maxima = {jobs = max_jobs, job_inputs = max_inputs, job_bytes = max_bytes, upload_bytes = max_upload_bytes}
maxima.result_bytes = max_result_bytes

-- Returns what all hold of a kind, and what the tenant holds. Results that are kept count as those to come.
local function find_amounts(kind)
  local other = kind == 'result_bytes' and 'kept_bytes' or ''
  local amounts = redis.call('HMGET', owed, kind, kind .. ' ' .. tenant, other, other .. ' ' .. tenant)
  return (amounts[1] or 0) + (amounts[3] or 0), (amounts[2] or 0) + (amounts[4] or 0)
end

-- Returns why a tenant may not hold more; nil if it may. It may hold up to `factor` times what stays free: so any number
-- of tenants share a maximum by weight, and a part is left for the next. A tenant without a job may have the last one.
-- find_refusal in api/tenants.py is the same rule.
local function find_refusal(more, factor)
  for kind, amount in pairs(more) do
    local maximum, total, own = tonumber(maxima[kind]), find_amounts(kind)
    own = own + amount
    local free = maximum - total - amount
    local prefix = kind == 'result_bytes' and 'results_' or ''
    local is_bounded = factor and not (kind == 'jobs' and own == 1)
    if amount > 0 and free < 0 and not (is_bounded and own > factor / (1 + factor) * maximum) then
      return prefix .. 'full'
    elseif amount > 0 and is_bounded and own > factor * free then
      return prefix .. 'share'
    end
  end
end

-- Removes the uploads that have expired, because their gateways have died, and results that have expired. Returns whether
-- there were any.
local function remove_expired()
  local found, all = release_expired_results(owed, kept, now), redis.call('HKEYS', uploads)
  for i = 1, #all do
    local upload = find_upload(uploads, all[i])
    if not upload then
      redis.call('HDEL', uploads, all[i])
    elseif upload.expires_ms < now then
      found = true
      release_upload(owed, uploads, all[i], upload)
    end
  end
  return found
end

local status = redis.call('HGET', KEYS[1], 'status')
if status and status ~= 'uploading' then
  return {'ok'}
end
if KEYS[5] ~= KEYS[1] and find_key_holder(KEYS[5], job_prefix) then
  return {'known'}
end
local upload = find_upload(uploads, job_id)
local account, parsed, factor
if limits ~= '' then
  account, parsed = load_tenant(KEYS[4], tenant, limits, now)
  local share = tonumber(tenant_share)
  factor = share < 1 and share / (1 - share) * parsed[4]
end
local before = upload or {inputs = 0, bytes = 0, tokens = 0, day = 0, results = 0}
local more_bytes = bytes - before.bytes
local more_jobs = upload and 0 or 1
local more = {jobs = more_jobs, job_inputs = inputs - before.inputs, job_bytes = more_bytes, upload_bytes = more_bytes}
more.result_bytes = results - before.results
local refusal = find_refusal(more, factor)
if refusal and remove_expired() then
  refusal = find_refusal(more, factor)
end
if refusal then
  return {refusal}
end
if account then
  refund(account, before.tokens, before.day)  -- the whole is checked, and charged, as if it came at once
  local wait_ms, limit = wait_for(account, parsed, tonumber(tokens), now)
  if wait_ms > 0 then
    return {'limited', wait_ms, limit}
  end
  charge(account, parsed, tonumber(tokens), false)
end

local entries, replies = KEYS[1] .. ':in', KEYS[1] .. ':out'
local first_reply = FIRST_ROW + 2 * num_entries
for at = FIRST_ROW, first_reply - 1, 2 do
  local position, element = unpack(ARGV, at, at + 1)
  if redis.call('HSET', entries, position, element) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':todo', position)
  end
end
for at = first_reply, #ARGV, 2 do
  local position, reply = unpack(ARGV, at, at + 1)
  if redis.call('HSET', replies, position, reply) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':failed', position)
    redis.call('HINCRBY', KEYS[1], 'stored_bytes', #reply + REPLY_BYTES)
  end
end
redis.call('HSET', KEYS[1], 'status', 'uploading')
for _, part in ipairs({'', ':in', ':todo', ':out', ':failed'}) do
  redis.call('PEXPIRE', KEYS[1] .. part, ttl_ms)
end
add_amounts(owed, tenant, more)
redis.call('HSET', uploads, job_id, string.format('%.0f %s %s %s %.0f %s %s', now + ttl_ms, inputs, bytes,
                                                  account and tokens or '0', account and account.day or 0, tenant,
                                                  results))
write_tenants(KEYS[4], now)
return {'ok'}
