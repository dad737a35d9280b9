-- Hand back: gives entries that were claimed and not begun to whoever comes next.
--
-- KEYS      lanes
-- ARGV[1]   group      ARGV[2] consumer that gives      ARGV[3] consumer that keeps them meanwhile
-- ARGV[4]   idle time to show, ms: large, so that the next reclaim takes them
-- ARGV[5]   number of entries; then for each: lane index (from 0), entry id, attempts
--
-- Returns the number of entries given: what is no longer the giver's is left alone.
local group, me = ARGV[1], ARGV[2]
local given = 0
local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local lane, id = KEYS[1 + ARGV[at]], ARGV[at + 1]
  local mine = redis.pcall('XPENDING', lane, group, id, id, 1, me)
  if not mine.err and mine[1] then
    redis.call('XCLAIM', lane, group, ARGV[3], 0, id, 'IDLE', ARGV[4], 'RETRYCOUNT', 1 + ARGV[at + 2], 'JUSTID')
    given = given + 1
  end
  at = at + 3
end
return given
