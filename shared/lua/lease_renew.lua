-- Lease renew: a holder keeps its slot for another while.
--
-- KEYS[1]   slot
-- ARGV[1]   owner      ARGV[2] fence      ARGV[3] lifetime of the lease, ms
--
-- Returns 1, or 0: the slot is not, or no longer, held under this fence, and must be taken anew.
if redis.call('GET', KEYS[1]) ~= ARGV[1] .. ' ' .. ARGV[2] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
