-- Charge: charges a tenant for tokens that no worker has to compute.
--
-- KEYS[1]   tenants hash
-- ARGV: ChargeArguments
--   tenant      tenant, or ""
--   limits      limits of the tenant (see tenant_limits.lua)
--   cost        tokens
--   may_refuse  "1" if nothing is charged while the tenant's quota does not allow these tokens; "0" if it is overdrawn
--
-- Returns after how many ms the tenant may have the tokens; 0: they are charged.
local tenant, limits, cost, may_refuse = unpack(ARGV, 1, 4)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local account, parsed = load_tenant(KEYS[1], tenant, limits, now)
local wait_ms = wait_ms_for(account, parsed, tonumber(cost), now)
if wait_ms > 0 and may_refuse == '1' then
  return wait_ms
end
charge(account, parsed, tonumber(cost), false)
write_tenants(KEYS[1], now)
return 0
