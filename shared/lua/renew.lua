-- Renew: claims back to itself what a worker still owns, so that nobody takes it for abandoned.
--
-- KEYS      lanes
-- ARGV[1]   group      ARGV[2] consumer
-- ARGV[3]   number of entries; then for each: lane index (from 0), entry id, attempts
--
-- Returns {now_ms, {1 or 0 for each entry: whether it is still owned}, how many others are in their lanes all the same}.
-- What is not owned was cancelled, answered by another worker, or taken by one: it need not be run. What is still in its
-- lane may also have lost its group, and be delivered again to anyone, this worker included.
-- RETRYCOUNT holds 1 + attempts: Redis sets it to 1 when an entry is delivered.
local group, consumer = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local owned, elsewhere = {}, 0
local at = 4
for e = 1, tonumber(ARGV[3]) do
  local lane, id = KEYS[1 + ARGV[at]], ARGV[at + 1]
  local mine = redis.pcall('XPENDING', lane, group, id, id, 1, consumer)
  if mine.err then
    return mine
  end
  owned[e] = 0
  if mine[1] then
    redis.call('XCLAIM', lane, group, consumer, 0, id, 'RETRYCOUNT', 1 + ARGV[at + 2], 'JUSTID')
    owned[e] = 1
  else
    elsewhere = elsewhere + #redis.call('XRANGE', lane, id, id)
  end
  at = at + 3
end
return {time[1] * 1000 + math.floor(time[2] / 1000), owned, elsewhere}
