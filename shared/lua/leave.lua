-- Leave: a worker that holds no entries any more removes its name from the group.
--
-- KEYS[1]   its heartbeat      KEYS[2] its begun entries      KEYS[3..] lanes
-- ARGV
--   group     consumer group
--   consumer  the worker
--
-- Returns the number of entries that it still owes. Its name stays in each lane where it owes any, because deleting a
-- consumer deletes its pending records. Its time in the zset of workers stays: that shows when a worker was last alive.
local group, consumer = unpack(ARGV, 1, 2)
local owed = 0
redis.call('DEL', KEYS[1])
for i = 3, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], group, '-', '+', 1000, consumer)
  if not pending.err then
    if #pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[i], group, consumer)
    end
    owed = owed + #pending
  end
end
if owed == 0 then
  redis.call('DEL', KEYS[2])  -- otherwise the worker that takes over reads there which entries had begun
end
return owed
