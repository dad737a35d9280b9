-- Lease renew: a holder extends its lease of a slot.
--
-- KEYS[1]   slot
-- ARGV
--   owner     the owner
--   fence     the fence under which it holds the slot
--   ttl_ms    lifetime of the lease, from now
--
-- Returns 1, or 0: the slot is not held under this fence, or no longer, and must be acquired again.
local owner, fence, ttl_ms = unpack(ARGV, 1, 3)
if redis.call('GET', KEYS[1]) ~= owner .. ' ' .. fence then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ttl_ms)
return 1
