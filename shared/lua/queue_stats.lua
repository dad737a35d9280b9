-- Queue stats: the state of the queue.
--
-- KEYS[1]   epoch      KEYS[2] zset of workers      KEYS[3] backlog hash      KEYS[4] tenants hash
-- KEYS[5]   stream of dead letters      KEYS[6] zset of open jobs      KEYS[7] hash of what jobs are owed
-- KEYS[8..] lanes
-- ARGV
--   group          consumer group
--   worker_prefix  prefix of the keys of heartbeats
--   active_ms      how long after its last accepted request for the first lane a tenant counts as active
-- Also reads the heartbeat of each member of the zset, a key of the same slot.
--
-- A replica answers READONLY, as it does to every write: a gateway that reads from a replica would see a queue that no
-- worker serves.
-- What INFO does not say, as some services refuse it, is 0 or "".
-- Writes nothing. Returns {now_ms, epoch or "", inputs, tokens, {entries of lane 0, entries of lane 1, ...}, pending,
--          {id of the oldest entry of lane 0 or "", ...}, time of the last heartbeat of any worker in ms or 0,
--          {heartbeat of a live worker, ...}, bytes that Redis uses, bytes that it may use or 0, sum of the weights of
--          active tenants, and of those of them that have a name (as text), dead letters, open jobs, inputs that these
--          are owed, 1 if Redis failed when it last wrote its append-only file or snapshot, bytes, bytes of results of
--          jobs, maxmemory-policy or ""}.
local group, worker_prefix, active_ms = unpack(ARGV, 1, 3)
local function read_info(section)
  local text = redis.pcall('INFO', section)
  return text.err and '' or text
end
local role = string.match(read_info('replication'), 'role:(%a+)')
if role and role ~= 'master' then
  return redis.error_reply('READONLY this Redis is a replica')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('GET', KEYS[1]) or ''
local entries, pending, oldest = {}, 0, {}
for i = 8, #KEYS do
  entries[#entries + 1] = redis.call('XLEN', KEYS[i])
  local summary = redis.pcall('XPENDING', KEYS[i], group)
  if not summary.err then
    pending = pending + summary[1]
  end
  local first = redis.call('XRANGE', KEYS[i], '-', '+', 'COUNT', 1)
  oldest[#oldest + 1] = first[1] and first[1][1] or ''
end
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local live = {}
for _, worker in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local heartbeat = redis.call('GET', worker_prefix .. worker)
  if heartbeat then
    live[#live + 1] = heartbeat
  end
end
local weights, named = 0, 0
local tenants = redis.call('HGETALL', KEYS[4])
for i = 1, #tenants, 2 do
  local text, last_ms = string.match(tenants[i + 1], '^%S+ %S+ %S+ %S+ %S+ (%S+) (%S+)$')
  local age, weight = now - (tonumber(last_ms) or 0), tonumber(text) or 0
  if age >= 0 and age <= tonumber(active_ms) and weight > 0 and weight <= 100 then
    weights = weights + weight
    named = named + (tenants[i] == '' and 0 or weight)
  end
end
local memory = read_info('memory')
local load = redis.call('HMGET', KEYS[3], 'inputs', 'tokens', 'bytes')
local owed = redis.call('HMGET', KEYS[7], 'inputs', 'result_bytes', 'kept_bytes')
return {now, epoch, tonumber(load[1] or 0), tonumber(load[2] or 0), entries, pending, oldest,
        tonumber(last[2] or 0), live,
        tonumber(string.match(memory, 'used_memory:(%d+)') or 0), tonumber(string.match(memory, 'maxmemory:(%d+)') or 0),
        string.format('%.3f', weights), string.format('%.3f', named),
        redis.call('XLEN', KEYS[5]), redis.call('ZCARD', KEYS[6]), tonumber(owed[1] or 0),
        string.find(read_info('persistence'), '_status:err', 1, true) and 1 or 0, tonumber(load[3] or 0),
        (owed[2] or 0) + (owed[3] or 0), string.match(memory, 'maxmemory_policy:(%S+)') or ''}
