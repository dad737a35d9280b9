-- Prepended, after backlog.lua and add_entry.lua, to each script that moves inputs of jobs into the lanes or out of them.
--
-- A job is a hash. Beside it, under its key plus a suffix, are:
--   :in      hash: inputs without a result, by position; each element is "<inputs> <cost> <body>"
--   :todo    list: positions of the elements that have been in no lane yet
--   :fed     hash: ids of the elements that are entries of a lane now, by position
--   :out     hash: replies, by position
--   :failed  list: positions of the replies that are errors
-- `owed` holds the number of inputs of all jobs without a result; and of the jobs' entries in the lanes the number, the
-- inputs (`lane_inputs`), the tokens, and the bytes of their elements.
-- `open` holds the jobs that have not ended, scored by the tokens fed into the lanes; +inf once all inputs are fed.
--
-- `jobs` holds what these functions work on: open and owed (keys), lanes (keys, from 1), prefix (of job keys), group.

-- Returns the parts of an element of `:in`.
local function parse_element(element)
  local n, cost, body = string.match(element or '0 0 ', '^(%d+) (%d+) (.*)$')
  return tonumber(n), tonumber(cost), body
end

-- Adds an entry of a job to its lane, and records it in `:fed`.
local function add_to_lane(jobs, time, id, job, position, n, cost, body)
  local fields = {'id', id, 'v', '1', 'n', n, 'pos', position, 'cost', cost, 'deadline_ms', job.deadline_ms,
                  'job', '1'}
  if job.tenant ~= '' then
    fields[#fields + 1] = 'tenant'
    fields[#fields + 1] = job.tenant
  end
  if job.traceparent then
    fields[#fields + 1] = 'traceparent'
    fields[#fields + 1] = job.traceparent
  end
  fields[#fields + 1] = 'body'
  fields[#fields + 1] = body
  redis.call('HSET', jobs.prefix .. id .. ':fed', position, add_entry(jobs.lanes[job.lane + 1], time, id, fields))
end

-- Returns the fields of a job that its entries need; nil if there is no such job.
local function read_job(jobs, id)
  local fields = redis.call('HMGET', jobs.prefix .. id, 'lane', 'tenant', 'entry_deadline_ms', 'traceparent')
  if not fields[1] then
    return nil
  end
  return {lane = tonumber(fields[1]), tenant = fields[2], deadline_ms = fields[3], traceparent = fields[4]}
end

-- Moves inputs of jobs into the lanes while fewer than max_entries entries, max_tokens tokens and max_bytes bytes of jobs
-- are there. The job with the fewest tokens fed comes first. One entry may always be there, however large. Returns the
-- entries added.
local function feed_lanes(jobs, time, max_entries, max_tokens, max_bytes)
  local owed = redis.call('HMGET', jobs.owed, 'entries', 'tokens', 'bytes')
  local entries, tokens, bytes = tonumber(owed[1] or 0), tonumber(owed[2] or 0), tonumber(owed[3] or 0)
  local num_fed, fed_inputs, fed_tokens, fed_bytes = 0, 0, 0, 0
  local function has_room()
    return entries + num_fed == 0 or tokens + fed_tokens < max_tokens and bytes + fed_bytes < max_bytes
  end
  while entries + num_fed < max_entries and has_room() do
    local first = redis.call('ZRANGE', jobs.open, 0, 0, 'WITHSCORES')
    if #first == 0 or first[2] == 'inf' then
      break
    end
    local id = first[1]
    local job = read_job(jobs, id)
    local position = job and redis.call('LPOP', jobs.prefix .. id .. ':todo')
    local element = position and redis.call('HGET', jobs.prefix .. id .. ':in', position)
    if not job then
      redis.call('ZREM', jobs.open, id)
    elseif not position then
      redis.call('ZADD', jobs.open, '+inf', id)
    elseif element then
      local n, cost, body = parse_element(element)
      add_to_lane(jobs, time, id, job, position, n, cost, body)
      redis.call('ZINCRBY', jobs.open, cost, id)
      count_entry(job.lane, n, cost)
      num_fed, fed_inputs, fed_tokens = num_fed + 1, fed_inputs + n, fed_tokens + cost
      fed_bytes = fed_bytes + #element
    end
  end
  if num_fed > 0 then
    redis.call('HINCRBY', jobs.owed, 'entries', num_fed)
    redis.call('HINCRBY', jobs.owed, 'lane_inputs', fed_inputs)
    redis.call('HINCRBY', jobs.owed, 'tokens', fed_tokens)
    redis.call('HINCRBY', jobs.owed, 'bytes', fed_bytes)
  end
  return num_fed
end

-- Removes a job's entries from its lane, and subtracts its open inputs, entries and tokens from what jobs are owed.
local function withdraw(jobs, id)
  local key = jobs.prefix .. id
  local fields = redis.call('HMGET', key, 'lane', 'n', 'done', 'failed')
  local lane = jobs.lanes[fields[1] + 1]
  local fed = redis.call('HGETALL', key .. ':fed')
  local inputs, tokens, bytes = 0, 0, 0
  for i = 1, #fed, 2 do
    local element = redis.call('HGET', key .. ':in', fed[i])
    local n, cost = parse_element(element)
    inputs, tokens, bytes = inputs + n, tokens + cost, bytes + #(element or '')
    if redis.call('XDEL', lane, fed[i + 1]) == 1 then
      redis.pcall('XACK', lane, jobs.group, fed[i + 1])
      count_entry(fields[1], -n, -cost)
    end
  end
  redis.call('HINCRBY', jobs.owed, 'inputs', fields[3] + fields[4] - fields[2])
  redis.call('HINCRBY', jobs.owed, 'entries', 0 - #fed / 2)
  redis.call('HINCRBY', jobs.owed, 'lane_inputs', 0 - inputs)
  redis.call('HINCRBY', jobs.owed, 'tokens', 0 - tokens)
  redis.call('HINCRBY', jobs.owed, 'bytes', 0 - bytes)
end
