-- Job feed: brings inputs of jobs into the lanes, as far as there is room for them; and, now and then, looks after jobs:
-- ends those whose time is over, adds again entries that are in no lane any more, and forgets what is long gone.
--
-- KEYS[1]   backlog hash      KEYS[2] open jobs      KEYS[3] what jobs are owed      KEYS[4] results stream
-- KEYS[5]   all jobs      KEYS[6..] lanes, in the order of keys.LANES
-- ARGV[1]   what keys of jobs begin with      ARGV[2] most entries, ARGV[3] most tokens of jobs in the lanes
-- ARGV[4]   group      ARGV[5] most results kept in the stream      ARGV[6] ms between two looks after jobs
-- ARGV[7]   ms that a result stays in the stream
--
-- Returns {entries brought, entries added again, jobs expired, open jobs}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local of = {open = KEYS[2], owed = KEYS[3], results = KEYS[4], prefix = ARGV[1], group = ARGV[4], most = ARGV[5]}
of.lanes = {unpack(KEYS, 6)}
local again, expired = 0, 0

-- Adds again what of a job's is fed and in no lane: the stream was deleted, or the entry was, by hand. Returns the
-- entries and tokens that are in its lane now.
local function repair(id)
  local told = told_of(of, id)
  local fed = told and redis.call('HGETALL', of.prefix .. id .. ':fed') or {}
  local tokens = 0
  for i = 1, #fed, 2 do
    local n, cost, body = parts_of(redis.call('HGET', of.prefix .. id .. ':in', fed[i]))
    tokens = tokens + cost
    if #redis.call('XRANGE', of.lanes[told.lane + 1], fed[i + 1], fed[i + 1]) == 0 then
      add_to_lane(of, time, id, told, fed[i], n, cost, body)
      again = again + 1
    end
  end
  return #fed / 2, tokens
end

-- Looks after all open jobs, and counts anew what they are owed: it may have drifted, if keys were deleted by hand.
local function look_after()
  local inputs, entries, tokens = 0, 0, 0
  for _, id in ipairs(redis.call('ZRANGE', of.open, 0, -1)) do
    local told = redis.call('HMGET', of.prefix .. id, 'expires_ms', 'n', 'done', 'failed')
    if not told[1] then
      redis.call('ZREM', of.open, id)
    elseif now >= tonumber(told[1]) then
      withdraw(of, id)
      end_job(of, id, 'expired', now)
      expired = expired + 1
    else
      local in_lane, its_tokens = repair(id)
      inputs, entries, tokens = inputs + told[2] - told[3] - told[4], entries + in_lane, tokens + its_tokens
    end
  end
  redis.call('HSET', of.owed, 'inputs', inputs, 'entries', entries, 'tokens', tokens,
             'looked_ms', string.format('%d', now))
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, 63)) do  -- the oldest
    if redis.call('EXISTS', of.prefix .. id) == 0 then
      redis.call('ZREM', KEYS[5], id)
    end
  end
  redis.call('XTRIM', of.results, 'MINID', string.format('%d', math.max(0, now - ARGV[7])))
end

redis.call('ZREM', of.open, '')  -- allowed when memory is full, after which jobs may end, too
local looked = tonumber(redis.call('HGET', of.owed, 'looked_ms') or 0)
if now - looked >= tonumber(ARGV[6]) or now < looked then
  look_after()
end
local fed = feed(of, time, tonumber(ARGV[2]), tonumber(ARGV[3]))
write_count(KEYS[1], 1)
return {fed, again, expired, redis.call('ZCARD', of.open)}
