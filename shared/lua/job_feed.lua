-- Job feed: moves inputs of jobs into the lanes while there is room. From time to time it also checks all jobs: it ends
-- expired jobs, adds entries again that are in no lane any more, and removes old records and results that have expired from
-- the bounds.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] hash of what jobs are owed      KEYS[4] results stream
-- KEYS[5]   all jobs      KEYS[6] hash of uploads      KEYS[7] jobs that are kept
-- KEYS[8..] lanes, in the order of keys.LANES
-- ARGV: JobFeedArguments
--   job_prefix         prefix of the keys of jobs
--   max_lane_entries   maximum entries of jobs in the lanes
--   max_lane_tokens    maximum tokens of jobs in the lanes
--   max_lane_bytes     about the maximum bytes of jobs in the lanes; one entry may exceed it
--   group              consumer group
--   max_results        maximum results kept in the results stream
--   check_interval_ms  time between two checks of all jobs
--   result_ttl_ms      how long a result stays in the results stream
--
-- Returns {entries added, entries added again, jobs expired, open jobs}.
local job_prefix, max_lane_entries, max_lane_tokens, max_lane_bytes, group, max_results, check_interval_ms,
      result_ttl_ms = unpack(ARGV, 1, 8)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs = {open = KEYS[2], owed = KEYS[3], results = KEYS[4], kept = KEYS[7], prefix = job_prefix, group = group,
              max_results = max_results, lanes = {unpack(KEYS, 8)}}
local num_restored, num_expired = 0, 0

-- Adds entries of a job again that are recorded in `:fed` and in no lane: the stream, or the entry, was deleted by hand.
-- Returns the entries, inputs, tokens and bytes of the job that are in its lane now.
local function restore_entries(id)
  local job = read_job(jobs, id)
  local fed = job and redis.call('HGETALL', jobs.prefix .. id .. ':fed') or {}
  local inputs, tokens, bytes = 0, 0, 0
  for i = 1, #fed, 2 do
    local element = redis.call('HGET', jobs.prefix .. id .. ':in', fed[i])
    local n, cost, body = parse_element(element)
    inputs, tokens, bytes = inputs + n, tokens + cost, bytes + #(element or '')
    if #redis.call('XRANGE', jobs.lanes[job.lane + 1], fed[i + 1], fed[i + 1]) == 0 then
      add_to_lane(jobs, time, id, job, fed[i], n, cost, body)
      num_restored = num_restored + 1
    end
  end
  return #fed / 2, inputs, tokens, bytes
end

-- Adds what a job or an upload holds to the amounts of all and of its tenant: the fields of `owed` as they should be.
local function count_amounts(amounts, tenant, inputs, bytes, upload_bytes, result_bytes)
  local own = {jobs = 1, job_inputs = inputs, job_bytes = bytes, upload_bytes = upload_bytes,
               result_bytes = result_bytes}
  for kind, amount in pairs(own) do
    for _, field in ipairs({kind, kind .. ' ' .. tenant}) do
      amounts[field] = (amounts[field] or 0) + amount
    end
  end
end

-- Counts what an open job holds: fewer inputs, as these get their results, and more results, if these are larger than
-- expected.
local function count_job(amounts, id, fields)
  local inputs = fields[2] - fields[3] - fields[4]
  local bytes = math.ceil((fields[6] or 0) * inputs / fields[2])
  local held_results = tonumber(fields[8] or 0)
  local results = math.max(held_results, fields[9] or 0)
  if inputs ~= tonumber(fields[7] or 0) or results > held_results then
    redis.call('HSET', jobs.prefix .. id, 'held_inputs', inputs, 'held_bytes', bytes,
               'held_results', string.format('%.0f', results))
  end
  count_amounts(amounts, fields[5] or '', inputs, bytes, 0, results)
end

-- Counts what uploads reserve, and removes those that have expired: their gateways have died.
local function count_uploads(amounts)
  for _, id in ipairs(redis.call('HKEYS', KEYS[6])) do
    local upload = find_upload(KEYS[6], id)
    if upload and upload.expires_ms >= now then
      count_amounts(amounts, upload.tenant, upload.inputs, upload.bytes, upload.bytes, upload.results)
    else
      redis.call('HDEL', KEYS[6], id)
    end
  end
end

-- Writes the amounts, where they differ from what was counted before. Without any kept job, nothing is kept.
local function write_amounts(amounts)
  local stored = redis.call('HGETALL', jobs.owed)
  local is_any_kept = redis.call('EXISTS', jobs.kept) == 1
  for i = 1, #stored, 2 do
    local field = stored[i]
    local kind = string.match(field, '^%S+')
    if KINDS[kind] or kind == 'kept_bytes' and not is_any_kept then
      if (amounts[field] or 0) == 0 then
        redis.call('HDEL', jobs.owed, field)
      elseif amounts[field] == tonumber(stored[i + 1]) then
        amounts[field] = 0
      end
    end
  end
  for field, amount in pairs(amounts) do
    if amount ~= 0 then
      redis.call('HSET', jobs.owed, field, string.format('%.0f', amount))
    end
  end
end

-- Checks all open jobs, and counts again what they hold and are owed: the counters may have drifted if keys were deleted
-- by hand.
local function check_jobs()
  local amounts, inputs, entries, lane_inputs, tokens, bytes = {}, 0, 0, 0, 0, 0
  for _, id in ipairs(redis.call('ZRANGE', jobs.open, 0, -1)) do
    local fields = redis.call('HMGET', jobs.prefix .. id, 'expires_ms', 'n', 'done', 'failed', 'tenant', 'bytes',
                              'held_inputs', 'held_results', 'stored_bytes')
    if not fields[1] then
      redis.call('ZREM', jobs.open, id)
    elseif now >= tonumber(fields[1]) then
      withdraw(jobs, id)
      end_job(jobs, id, 'expired', now)
      num_expired = num_expired + 1
    else
      local job_entries, job_inputs, job_tokens, job_bytes = restore_entries(id)
      inputs, entries = inputs + fields[2] - fields[3] - fields[4], entries + job_entries
      lane_inputs, tokens, bytes = lane_inputs + job_inputs, tokens + job_tokens, bytes + job_bytes
      count_job(amounts, id, fields)
    end
  end
  count_uploads(amounts)
  release_expired_results(jobs.owed, jobs.kept, now)
  write_amounts(amounts)
  redis.call('HSET', jobs.owed, 'inputs', inputs, 'entries', entries, 'lane_inputs', lane_inputs, 'tokens', tokens,
             'bytes', bytes, 'looked_ms', string.format('%d', now))
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, 63)) do  -- the oldest
    if redis.call('EXISTS', jobs.prefix .. id) == 0 then
      redis.call('ZREM', KEYS[5], id)
    end
  end
  redis.call('XTRIM', jobs.results, 'MINID', string.format('%d', math.max(0, now - result_ttl_ms)))
end

redis.call('ZREM', jobs.open, '')  -- Redis allows this when memory is full, and after it lets jobs end too
local checked_ms = tonumber(redis.call('HGET', jobs.owed, 'looked_ms') or 0)
if now - checked_ms >= tonumber(check_interval_ms) or now < checked_ms then
  check_jobs()
end
local num_fed = feed_lanes(jobs, time, tonumber(max_lane_entries), tonumber(max_lane_tokens), tonumber(max_lane_bytes))
write_counts(KEYS[1], 1)
return {num_fed, num_restored, num_expired, redis.call('ZCARD', jobs.open)}
