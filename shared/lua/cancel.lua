-- Cancel: takes back entries that nobody waits for any more.
--
-- KEYS[1]   backlog hash
-- KEYS[2 .. 1+L]  the L lanes; after them the reply keys to wake
-- ARGV[1]   group      ARGV[2] number of lanes L      ARGV[3] ms that a wake-up lives
-- ARGV[4]   number of entries; then for each: lane index (from 0), entry id, inputs, cost
--
-- Returns the number of entries that were still there.
-- A waiter that blocks on its own key is never cancelled: an empty element wakes it, and it is free at once.
local group, ttl = ARGV[1], ARGV[3]
local gone = 0
local at = 5
for _ = 1, tonumber(ARGV[4]) do
  local lane, id = KEYS[2 + ARGV[at]], ARGV[at + 1]
  if redis.call('XDEL', lane, id) == 1 then
    redis.pcall('XACK', lane, group, id)  -- if it was claimed, its pending record goes too; the group may not exist
    gone = gone + 1
    count(ARGV[at], ARGV[at + 2], ARGV[at + 3])
  end
  at = at + 4
end
write_count(KEYS[1], -1)
for i = 2 + ARGV[2], #KEYS do
  redis.call('RPUSH', KEYS[i], '')
  redis.call('PEXPIRE', KEYS[i], ttl)
end
return gone
