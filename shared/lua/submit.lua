-- Submit: adds the entries of some requests, each request whole or not at all.
--
-- KEYS[1]    backlog hash        KEYS[2] epoch        KEYS[3] record of this gateway's last submit
-- KEYS[4]    tenants hash        KEYS[5..]  lanes, in the order of keys.LANES
-- ARGV[1]    sequence number of this submit, growing for each gateway
-- ARGV[2]    bound of the queue, in inputs      ARGV[3] the same in tokens
-- ARGV[4]    share of these bounds up to which the lanes behind the first may fill the queue
-- ARGV[5]    lifetime of the record, ms
-- ARGV[6]    number of requests; then for each:
--            lane index (from 0), request id, remaining budget in ms, exempt from the bound ("1" or "0"),
--            most tokens in its lane with this request, for it to be answered in time,
--            bell key or "", tenant or "", its limits or "" for none (see tenants.lua), traceparent or "", revision of
--            the model or "", number of entries;
--            then for each entry: position, inputs, cost, body
--
-- Returns {now_ms, epoch, {{status, ...}, ...}}: {"ok", entry id, ...}; {"behind", entry id, ...} in the second lane
-- instead of the first, since its tenant has had its share of that; {"late"}; {"full", lane index}; {"slow", lane index,
-- tokens} for a request that so many are before in that lane, too many; {"limited", ms} for one that its tenant may
-- send in so many. One that finds nothing to be done before it is never slow.
-- (What a lane gets done beside the others is known to whoever says how many are the most.)
-- A submit that is repeated (its reply was lost) returns what it returned at first, and adds nothing.
local seq = ARGV[1]
local record = redis.call('GET', KEYS[3])
if record then
  local saved = cmsgpack.unpack(record)
  if saved[1] == seq then
    return saved[2]
  end
  if tonumber(saved[1]) > tonumber(seq) then
    return redis.error_reply('STALE this submit was overtaken by a later one')
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('GET', KEYS[2])
if not epoch then
  epoch = time[1] .. '.' .. time[2]
  redis.call('SET', KEYS[2], epoch)
end

local depth = 0
for i = 5, #KEYS do
  depth = depth + redis.call('XLEN', KEYS[i])
end
local inputs, tokens, bulk_tokens = 0, 0, 0
if depth > 0 then
  local load = redis.call('HMGET', KEYS[1], 'inputs', 'tokens', 'bulk_tokens')
  inputs, tokens, bulk_tokens = tonumber(load[1] or 0), tonumber(load[2] or 0), tonumber(load[3] or 0)
end
local bound, token_bound, bulk_share = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local results = {}
local at = 7

for r = 1, tonumber(ARGV[6]) do
  local index, id, budget, exempt = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local most, bell, tenant, limits_text = tonumber(ARGV[at + 4]), ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local traceparent, revision, m = ARGV[at + 8], ARGV[at + 9], tonumber(ARGV[at + 10])
  at = at + 11
  local n, cost = 0, 0
  for e = 0, m - 1 do
    n = n + ARGV[at + 4 * e + 1]
    cost = cost + ARGV[at + 4 * e + 2]
  end
  local status, wait, left, limits = 'ok', 0, nil, nil
  if limits_text ~= '' and exempt ~= '1' then
    left, limits = tenant_of(KEYS[4], tenant, limits_text, now)
    wait = wait_of(left, limits, cost, now)
    if index == 0 and is_over_share(left, limits, cost) then
      status, index, most = 'behind', 1, limits[6]
    end
  end
  local all, bulk = tokens + counted.tokens, bulk_tokens + counted.bulk_tokens
  local share, before, idle = bulk_share, bulk, all == 0
  if index == 0 then
    share, before, idle = 1, all - bulk, all == bulk
  end
  if budget <= 0 then
    results[r] = {'late'}
  elseif wait > 0 then
    results[r] = {'limited', wait}
  elseif exempt ~= '1' and (inputs + counted.inputs + n > share * bound
                            or tokens + counted.tokens + cost > share * token_bound) then
    results[r] = {'full', index}
  elseif exempt ~= '1' and not idle and before + cost > most then
    results[r] = {'slow', index, before}
  else
    local result = {status}
    local deadline = string.format('%d', now + budget)
    for e = 0, m - 1 do
      local fields = {'id', id, 'v', '1', 'n', ARGV[at + 4 * e + 1], 'pos', ARGV[at + 4 * e],
                      'cost', ARGV[at + 4 * e + 2], 'deadline_ms', deadline}
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
      if bell ~= '' then
        fields[#fields + 1] = 'bell'
        fields[#fields + 1] = bell
      end
      fields[#fields + 1] = 'body'
      fields[#fields + 1] = ARGV[at + 4 * e + 3]
      result[#result + 1] = add_entry(KEYS[5 + index], time, id, fields)
    end
    count(index, n, cost)
    if left then
      spend(left, limits, cost, index == 0)
    end
    results[r] = result
  end
  at = at + 4 * m
end

-- The entries come before this: the first write decides whether a script may run when memory is full.
if depth == 0 then
  redis.call('DEL', KEYS[1])  -- nothing was there, so whatever the counters said had drifted
end
write_count(KEYS[1], 1)
write_tenants(KEYS[4], now)
local reply = {now, epoch, results}
redis.call('SET', KEYS[3], cmsgpack.pack({seq, reply}), 'PX', ARGV[5])
return reply
