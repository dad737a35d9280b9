-- Leave: a worker that holds nothing any more takes its name out of the group.
--
-- KEYS[1]   its heartbeat      KEYS[2] its begun entries      KEYS[3..] lanes
-- ARGV[1]   group      ARGV[2] consumer
--
-- Returns the number of entries that it still owed; its name stays in each lane where it owed any, because deleting a
-- consumer deletes its pending records. Its time in the zset of workers stays: it tells when a worker last lived.
local owed = 0
redis.call('DEL', KEYS[1])
for i = 3, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], ARGV[1], '-', '+', 1000, ARGV[2])
  if not pending.err then
    if #pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], ARGV[2])
    end
    owed = owed + #pending
  end
end
if owed == 0 then
  redis.call('DEL', KEYS[2])  -- otherwise it tells whoever takes over what had begun
end
return owed
