-- Join: makes the group where it is missing, from the first entry on.
--
-- KEYS[1]   epoch      KEYS[2..] lanes
-- ARGV[1]   group
--
-- Returns 1 if a group was made, else 0. A new group on a queue that had one means that data was lost: a new epoch
-- tells gateways to look after their requests.
local made = 0
for i = 2, #KEYS do
  local reply = redis.pcall('XGROUP', 'CREATE', KEYS[i], ARGV[1], '0', 'MKSTREAM')
  if not reply.err then
    made = 1
  elseif string.sub(reply.err, 1, 9) ~= 'BUSYGROUP' then
    return reply
  end
end
if made == 1 then
  local time = redis.call('TIME')
  redis.call('SET', KEYS[1], time[1] .. '.' .. time[2])
end
return made
