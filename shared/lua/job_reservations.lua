-- Prepended to each script that reserves or releases what jobs hold.
--
-- The hash `owed` has these amounts: a field "<kind>" of all tenants together, and "<kind> <tenant>" for each that holds
-- any. An upload is a job whose inputs still arrive. Kinds are
--   jobs          jobs that have not ended, and uploads
--   job_inputs    their inputs that can run: of a job, those without a result, as of the last check of all jobs
--   job_bytes     the bytes of these inputs, and of the errors of other inputs
--   upload_bytes  the part of uploads in job_bytes
--   result_bytes  the bytes of the results of these jobs: those expected, or those stored if there are more of them, as of
--                 the last check of all jobs
--   kept_bytes    the bytes of the results of jobs that have ended, until these expire or are deleted
-- The hash `uploads` has what each upload reserves, by job id:
-- "<ms of Redis' clock at which it expires> <inputs> <bytes> <tokens charged> <day> <tenant> <bytes of results>".
-- A job has its amounts in the fields held_inputs, held_bytes and held_results, and in stored_bytes those of the results
-- that it has. The zset `kept` has the jobs that have ended, scored by the ms at which their results expire:
-- "<job id> <bytes of results> <tenant>".
--
-- The kinds that a check of all jobs counts again. It does not count kept_bytes: of ended jobs there may be many.
local KINDS = {jobs = true, job_inputs = true, job_bytes = true, upload_bytes = true, result_bytes = true}

-- About what Redis needs for an ended job beside its results, and for a reply beside its content.
local JOB_BYTES, REPLY_BYTES = 1536, 128

-- Maximum jobs that are released at a time, so that no other command waits for long.
local MAX_RELEASED = 1000

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

-- Returns the id and the digest of the job that has an idempotency key, by the record of the key. A job that was
-- cancelled or deleted no longer has it: who sends the request again wants its results.
local function find_key_holder(record, job_prefix)
  local id, digest = unpack(redis.call('HMGET', record, 'id', 'digest'))
  local status = id and redis.call('HGET', job_prefix .. id, 'status')
  if status and status ~= 'cancelled' and status ~= 'deleted' then
    return id, digest
  end
end

-- Returns what an upload reserves; nil if there is no such upload. A gateway of an earlier version reserves no results.
local function find_upload(uploads, id)
  local expires, inputs, bytes, tokens, day, tenant, results =
    string.match(redis.call('HGET', uploads, id) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S*) ?(%d*)$')
  return expires and {expires_ms = tonumber(expires), inputs = tonumber(inputs), bytes = tonumber(bytes),
                      tokens = tonumber(tokens), day = tonumber(day), tenant = tenant, results = tonumber(results) or 0}
end

-- Removes an upload that became a job: the job has its amounts from now on, except for upload_bytes.
local function remove_upload(owed, uploads, id, upload)
  redis.call('HDEL', uploads, id)
  add_amounts(owed, upload.tenant, {upload_bytes = -upload.bytes})
end

-- Removes an upload, and releases all that it reserves.
local function release_upload(owed, uploads, id, upload)
  remove_upload(owed, uploads, id, upload)
  local held = {jobs = -1, job_inputs = -upload.inputs, job_bytes = -upload.bytes, result_bytes = -upload.results}
  add_amounts(owed, upload.tenant, held)
end

-- Returns the member of `kept` for a job.
local function kept_member(id, bytes, tenant)
  return string.format('%s %.0f %s', id, bytes, tenant)
end

-- Counts the results of a job that has ended as its tenant's, until they expire.
local function keep_results(owed, kept, id, tenant, bytes, expires_ms)
  redis.call('ZADD', kept, string.format('%.0f', expires_ms), kept_member(id, bytes, tenant))
  add_amounts(owed, tenant, {kept_bytes = bytes})
end

-- Releases results that were deleted or have expired, unless that was done before.
local function release_results(owed, kept, member)
  local bytes, tenant = string.match(member, '^%S+ (%d+) (.*)$')
  if redis.call('ZREM', kept, member) == 1 and bytes then
    add_amounts(owed, tenant, {kept_bytes = -bytes})
  end
end

-- Releases results that have expired. Returns whether there were any.
local function release_expired_results(owed, kept, now)
  local members = redis.call('ZRANGE', kept, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, MAX_RELEASED)
  for _, member in ipairs(members) do
    release_results(owed, kept, member)
  end
  return #members > 0
end
