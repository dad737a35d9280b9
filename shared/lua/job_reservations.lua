-- Prepended to each script that reserves or releases what jobs hold.
--
-- The hash `owed` has these amounts: a field "<kind>" of all tenants together, and "<kind> <tenant>" for each that holds
-- any. An upload is a job whose inputs still arrive. Kinds are
--   jobs          jobs that have not ended, and uploads
--   job_inputs    their inputs that can run: of a job, those without a result, as of the last check of all jobs
--   job_bytes     the bytes of these inputs, and of the errors of other inputs
--   upload_bytes  the part of uploads in job_bytes
-- The hash `uploads` has what each upload reserves, by job id:
-- "<ms of Redis' clock at which it expires> <inputs> <bytes> <tokens charged> <day> <tenant>".
-- A job has its amounts in the fields held_inputs and held_bytes.
local KINDS = {jobs = true, job_inputs = true, job_bytes = true, upload_bytes = true}

-- Adds amounts, by kind, to what a tenant holds; negative ones release.
local function add_amounts(owed, tenant, amounts)
  for kind, amount in pairs(amounts) do
    for _, field in ipairs(amount ~= 0 and {kind, kind .. ' ' .. tenant} or {}) do
      if redis.call('HINCRBY', owed, field, amount) <= 0 then
        redis.call('HDEL', owed, field)
      end
    end
  end
end

-- Returns what an upload reserves; nil if there is no such upload.
local function find_upload(uploads, id)
  local expires, inputs, bytes, tokens, day, tenant =
    string.match(redis.call('HGET', uploads, id) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return expires and {expires_ms = tonumber(expires), inputs = tonumber(inputs), bytes = tonumber(bytes),
                      tokens = tonumber(tokens), day = tonumber(day), tenant = tenant}
end

-- Removes an upload that became a job: the job has its amounts from now on, except for upload_bytes.
local function remove_upload(owed, uploads, id, upload)
  redis.call('HDEL', uploads, id)
  add_amounts(owed, upload.tenant, {upload_bytes = -upload.bytes})
end

-- Removes an upload, and releases all that it reserves.
local function release_upload(owed, uploads, id, upload)
  remove_upload(owed, uploads, id, upload)
  add_amounts(owed, upload.tenant, {jobs = -1, job_inputs = -upload.inputs, job_bytes = -upload.bytes})
end
