-- Submit: adds the entries of requests, each request whole or not at all.
--
-- KEYS[1]   backlog hash      KEYS[2] epoch      KEYS[3] record of this gateway's last submit
-- KEYS[4]   tenants hash      KEYS[5] hash of what jobs are owed      KEYS[6..] lanes, in the order of keys.LANES
-- ARGV: SubmitArguments
--   sequence_number   number of this submit; grows with each submit of a gateway
--   max_queue_inputs  bound of the queue, in inputs
--   max_queue_tokens  bound of the queue, in tokens
--   max_queue_bytes   bound of the queue, in bytes of the entries that count these
--   bulk_share        share of these bounds up to which the lanes behind the first may fill the queue
--   record_ttl_ms     lifetime of the record
--   num_requests      number of requests that follow
-- then, num_requests times, SubmitRequestRow
--   lane              index of the lane, from 0
--   request_id        id of the request
--   budget_ms         time left until its deadline
--   is_exempt         1: it was accepted before, and passes all bounds and limits. 0: it does not
--   required_epoch    "any", or the epoch that the queue must still have, "" being that of a queue without one: that at
--                     which a reconcile found the entries lost
--   max_lane_tokens   maximum tokens in its lane, including this request, for an answer in time
--   bell              key of the bell, or ""
--   tenant            tenant, or ""
--   limits            limits of the tenant (see tenant_limits.lua), or "" for none
--   traceparent       traceparent, or ""
--   revision          revision of the model, or ""
--   num_coalesced     number of requests of clients that it consists of
--   num_entries       number of its entries
-- and, after each of them, num_entries times, NewEntry
--   position          position of the entry's first input
--   n                 inputs
--   cost              estimated tokens
--   body              the encoded body
--   counted_bytes     bytes that count against the bound; 0: none
--
-- Returns {now_ms, epoch, {outcome of each request, ...}}. An outcome is
--   {"ok", entry id, ...}
--   {"behind", entry id, ...}      added to the second lane instead of the first: its tenant has used its share of that
--   {"late"}                       its deadline has passed
--   {"stale"}                      the queue has another epoch than the required one
--   {"limited", ms, limit}         the tenant may send it after that time (see wait_for in tenant_limits.lua)
--   {"full", lane index}           the lane is at its bound
--   {"slow", lane index, tokens}   that many tokens are queued ahead in the lane, too many; never if nothing is
-- Entries of jobs do not count against the bounds of the queue: feed_lanes in job_lanes.lua bounds them.
-- The caller derives max_lane_tokens from the lane's throughput beside the other lanes; the script only compares.
-- A submit that is repeated (its reply was lost) returns the first result again, and adds nothing.
local sequence_number, max_queue_inputs, max_queue_tokens, max_queue_bytes, bulk_share, record_ttl_ms,
      num_requests = unpack(ARGV, 1, 7)
local REQUEST_SIZE, ENTRY_SIZE = 13, 5
local record = redis.call('GET', KEYS[3])
if record then
  local saved = cmsgpack.unpack(record)
  if saved[1] == sequence_number then
    return saved[2]
  end
  if tonumber(saved[1]) > tonumber(sequence_number) then
    return redis.error_reply('STALE this submit was overtaken by a later one')
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('GET', KEYS[2])
local epoch_before = epoch or ''
if not epoch then
  epoch = time[1] .. '.' .. time[2]
  redis.call('SET', KEYS[2], epoch)
end

local depth = 0
for i = 6, #KEYS do
  depth = depth + redis.call('XLEN', KEYS[i])
end
local inputs, tokens, bulk_tokens, bytes, of_jobs = 0, 0, 0, 0, {}
if depth > 0 then
  local load = redis.call('HMGET', KEYS[1], 'inputs', 'tokens', 'bulk_tokens', 'bytes')
  inputs, tokens, bulk_tokens = tonumber(load[1] or 0), tonumber(load[2] or 0), tonumber(load[3] or 0)
  bytes = tonumber(load[4] or 0)
  of_jobs = redis.call('HMGET', KEYS[5], 'lane_inputs', 'tokens')
end
local bounded_inputs, bounded_tokens = inputs - (of_jobs[1] or 0), tokens - (of_jobs[2] or 0)
local results = {}
local at = 8

for r = 1, tonumber(num_requests) do
  local lane, request_id, budget_ms, is_exempt, required_epoch, max_lane_tokens, bell, tenant, limits, traceparent,
        revision, num_coalesced, num_entries = unpack(ARGV, at, at + 12)
  local first_entry = at + REQUEST_SIZE
  at = first_entry + ENTRY_SIZE * num_entries
  local index, budget, max_tokens = tonumber(lane), tonumber(budget_ms), tonumber(max_lane_tokens)
  local request_inputs, request_tokens, request_bytes = 0, 0, 0
  for e = first_entry, at - 1, ENTRY_SIZE do
    local _, n, cost = unpack(ARGV, e, e + 2)
    request_inputs = request_inputs + n
    request_tokens = request_tokens + cost
    request_bytes = request_bytes + ARGV[e + 4]
  end
  local all, bulk = tokens + counted.tokens, bulk_tokens + counted.bulk_tokens
  local status, wait_ms, limit, account, parsed = 'ok', 0, '', nil, nil
  local uses_share, is_bounded = index == 0, is_exempt == '0'
  if limits ~= '' and is_bounded then
    account, parsed = load_tenant(KEYS[4], tenant, limits, now)
    wait_ms, limit = wait_for(account, parsed, request_tokens, now)
    if index == 0 and is_over_share(account, parsed, request_tokens) then
      uses_share = false
      if not is_spare(parsed, request_tokens, all - bulk) then
        status, index, max_tokens = 'behind', 1, parsed[6]
      end
    end
  end
  local share, ahead, is_idle = tonumber(bulk_share), bulk, all == 0
  if index == 0 then
    share, ahead, is_idle = 1, all - bulk, all == bulk
  end
  if budget <= 0 then
    results[r] = {'late'}
  elseif required_epoch ~= 'any' and required_epoch ~= epoch_before then
    results[r] = {'stale'}
  elseif wait_ms > 0 then
    results[r] = {'limited', wait_ms, limit}
  elseif is_bounded and (bounded_inputs + counted.inputs + request_inputs > share * max_queue_inputs
                         or bounded_tokens + counted.tokens + request_tokens > share * max_queue_tokens
                         or request_bytes > 0
                            and bytes + counted.bytes + request_bytes > share * max_queue_bytes) then
    results[r] = {'full', index}
  elseif is_bounded and not is_idle and ahead + request_tokens > max_tokens then
    results[r] = {'slow', index, ahead}
  else
    local result = {status}
    local deadline_ms = string.format('%d', now + budget)
    for e = first_entry, at - 1, ENTRY_SIZE do
      local position, n, cost, body, counted_bytes = unpack(ARGV, e, e + 4)
      local fields = {'id', request_id, 'v', '1', 'n', n, 'pos', position, 'cost', cost, 'deadline_ms', deadline_ms}
      if tenant ~= '' then
        fields[#fields + 1] = 'tenant'
        fields[#fields + 1] = tenant
      end
      if traceparent ~= '' then
        fields[#fields + 1] = 'traceparent'
        fields[#fields + 1] = traceparent
      end
      if revision ~= '' then
        fields[#fields + 1] = 'revision'
        fields[#fields + 1] = revision
      end
      if num_coalesced ~= '1' then
        fields[#fields + 1] = 'coalesced'
        fields[#fields + 1] = num_coalesced
      end
      if bell ~= '' then
        fields[#fields + 1] = 'bell'
        fields[#fields + 1] = bell
      end
      if counted_bytes ~= '0' then
        fields[#fields + 1] = 'size'
        fields[#fields + 1] = counted_bytes
      end
      fields[#fields + 1] = 'body'
      fields[#fields + 1] = body
      result[#result + 1] = add_entry(KEYS[6 + index], time, request_id, fields)
    end
    count_entry(index, request_inputs, request_tokens, request_bytes)
    if account then
      charge(account, parsed, request_tokens, uses_share)
      if lane == '0' then
        account.active_ms = now
      end
    end
    results[r] = result
  end
end

-- Entries are added before this: the first write decides whether a script may run when memory is full.
if depth == 0 then
  redis.call('DEL', KEYS[1])  -- the lanes were empty, so the counters had drifted
end
write_counts(KEYS[1], 1)
write_tenants(KEYS[4], now)
local reply = {now, epoch, results}
redis.call('SET', KEYS[3], cmsgpack.pack({sequence_number, reply}), 'PX', record_ttl_ms)
return reply
