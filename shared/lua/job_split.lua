-- Job split: makes an entry for each input of an entry of a job that has failed, so that those fail alone that cannot run.
--
-- KEYS[1]   what jobs are owed      KEYS[2] lane
-- ARGV[1]   what keys of jobs begin with      ARGV[2] id of the job      ARGV[3] group
-- ARGV[4]   entry id      ARGV[5] its position      ARGV[6] number of inputs; then for each: cost, body
--
-- Returns whether it was done (1 or 0): somebody else may have answered the entry, or cancelled its job. The costs add
-- up to that of the entry, so nothing changes for the backlog.
local of = {prefix = ARGV[1], lanes = {}}
local id, entry, pos, n = ARGV[2], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local job = of.prefix .. id
redis.call('XACK', KEYS[2], ARGV[3], entry)
if redis.call('XDEL', KEYS[2], entry) ~= 1 or redis.call('HGET', job .. ':fed', pos) ~= entry then
  return 0
end
local told = told_of(of, id)
if not told then
  return 0
end
of.lanes[told.lane + 1] = KEYS[2]
local time = redis.call('TIME')
for i = 0, n - 1 do
  local cost, body = ARGV[7 + 2 * i], ARGV[8 + 2 * i]
  redis.call('HSET', job .. ':in', pos + i, '1 ' .. cost .. ' ' .. body)
  add_to_lane(of, time, id, told, string.format('%d', pos + i), '1', cost, body)
end
redis.call('HINCRBY', KEYS[1], 'entries', n - 1)
return 1
