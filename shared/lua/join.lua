-- Join: creates the consumer group where it is missing, from the first entry on.
--
-- KEYS[1]   epoch      KEYS[2..] lanes
-- ARGV
--   group     consumer group
--
-- Returns 1 if a group was created, else 0. A new group on a queue that had one means that data was lost: a new epoch
-- makes gateways check their requests.
local group = unpack(ARGV, 1, 1)
local created = 0
for i = 2, #KEYS do
  local reply = redis.pcall('XGROUP', 'CREATE', KEYS[i], group, '0', 'MKSTREAM')
  if not reply.err then
    created = 1
  elseif string.sub(reply.err, 1, 9) ~= 'BUSYGROUP' then
    return reply
  end
end
if created == 1 then
  local time = redis.call('TIME')
  redis.call('SET', KEYS[1], time[1] .. '.' .. time[2])
end
return created
