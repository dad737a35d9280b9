-- Stands behind backlog.lua and entry_id.lua, before the text of each script that moves inputs of jobs into the lanes, or
-- out of them.
--
-- A job is a hash, and beside it, under its key: `:in`, the inputs that have no result yet, by position, each element
-- "<inputs> <cost> <body>"; `:todo`, a list of the positions of those that were in no lane yet; `:fed`, the ids of those
-- that are entries of a lane now, by position; `:out`, replies by position; `:failed`, the positions of those that are
-- errors. `owed` has the inputs of all jobs without a result, and
-- the entries and tokens of jobs in the lanes. `open` are the jobs that have not ended, by the tokens that they have
-- had; +inf once all of their inputs are in a lane.
--
-- `of` names what these functions work on: open and owed (keys), lanes (keys, from 1), prefix (of job keys), group.

-- Returns the parts of an element of `:in`.
local function parts_of(element)
  local n, cost, body = string.match(element or '0 0 ', '^(%d+) (%d+) (.*)$')
  return tonumber(n), tonumber(cost), body
end

-- Adds an entry of a job to its lane, and notes it.
local function add_to_lane(of, time, id, told, pos, n, cost, body)
  local job = of.prefix .. id
  local fields = {'id', id, 'v', '1', 'n', n, 'pos', pos, 'cost', cost, 'deadline_ms', told.deadline_ms, 'job', '1'}
  if told.tenant ~= '' then
    fields[#fields + 1] = 'tenant'
    fields[#fields + 1] = told.tenant
  end
  if told.traceparent then
    fields[#fields + 1] = 'traceparent'
    fields[#fields + 1] = told.traceparent
  end
  fields[#fields + 1] = 'body'
  fields[#fields + 1] = body
  redis.call('HSET', job .. ':fed', pos, add_entry(of.lanes[told.lane + 1], time, id, fields))
end

-- Returns what is needed of a job to add its entries; nil if there is no such job.
local function told_of(of, id)
  local told = redis.call('HMGET', of.prefix .. id, 'lane', 'tenant', 'entry_deadline_ms', 'traceparent')
  if not told[1] then
    return nil
  end
  return {lane = tonumber(told[1]), tenant = told[2], deadline_ms = told[3], traceparent = told[4]}
end

-- Moves inputs of jobs into the lanes while fewer than so many entries and tokens of jobs are there: of the job that
-- has had the least first. One entry is always there, however large.
local function feed(of, time, most_entries, most_tokens)
  local owed = redis.call('HMGET', of.owed, 'entries', 'tokens')
  local entries, tokens = tonumber(owed[1] or 0), tonumber(owed[2] or 0)
  local fed, fed_tokens = 0, 0
  while entries + fed < most_entries and (entries + fed == 0 or tokens + fed_tokens < most_tokens) do
    local first = redis.call('ZRANGE', of.open, 0, 0, 'WITHSCORES')
    if #first == 0 or first[2] == 'inf' then
      break
    end
    local id = first[1]
    local told = told_of(of, id)
    local pos = told and redis.call('LPOP', of.prefix .. id .. ':todo')
    local element = pos and redis.call('HGET', of.prefix .. id .. ':in', pos)
    if not told then
      redis.call('ZREM', of.open, id)
    elseif not pos then
      redis.call('ZADD', of.open, '+inf', id)
    elseif element then
      local n, cost, body = parts_of(element)
      add_to_lane(of, time, id, told, pos, n, cost, body)
      redis.call('ZINCRBY', of.open, cost, id)
      count(told.lane, n, cost)
      fed, fed_tokens = fed + 1, fed_tokens + cost
    end
  end
  if fed > 0 then
    redis.call('HINCRBY', of.owed, 'entries', fed)
    redis.call('HINCRBY', of.owed, 'tokens', fed_tokens)
  end
  return fed
end

-- Takes a job's entries out of its lane, and what is left of it off what is owed.
local function withdraw(of, id)
  local job = of.prefix .. id
  local told = redis.call('HMGET', job, 'lane', 'n', 'done', 'failed')
  local lane = of.lanes[told[1] + 1]
  local fed = redis.call('HGETALL', job .. ':fed')
  local tokens = 0
  for i = 1, #fed, 2 do
    local n, cost = parts_of(redis.call('HGET', job .. ':in', fed[i]))
    tokens = tokens + cost
    if redis.call('XDEL', lane, fed[i + 1]) == 1 then
      redis.pcall('XACK', lane, of.group, fed[i + 1])
      count(told[1], -n, -cost)
    end
  end
  redis.call('HINCRBY', of.owed, 'inputs', told[3] + told[4] - told[2])
  redis.call('HINCRBY', of.owed, 'entries', -#fed / 2)
  redis.call('HINCRBY', of.owed, 'tokens', -tokens)
end
