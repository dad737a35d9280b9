-- Charge: charges tenants for tokens that no worker has to compute.
--
-- KEYS[1]   tenants hash
-- ARGV: ChargeRow
--   tenant      tenant, or ""
--   limits      limits of the tenant (see tenant_limits.lua)
--   cost        tokens
--   may_refuse  "1" if nothing is charged while the tenant's quota does not allow these tokens; "0" if it is overdrawn
--
-- More such rows may follow. Returns {ms, limit} for each, as wait_for returns them; {0, ""}: the tokens are charged.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waits = {}
for at = 1, #ARGV, 4 do
  local tenant, limits, cost, may_refuse = unpack(ARGV, at, at + 3)
  local account, parsed = load_tenant(KEYS[1], tenant, limits, now)
  local wait_ms, limit = wait_for(account, parsed, tonumber(cost), now)
  if wait_ms == 0 or may_refuse == '0' then
    charge(account, parsed, tonumber(cost), false)
    wait_ms, limit = 0, ''
  end
  waits[#waits + 1] = {wait_ms, limit}
end
write_tenants(KEYS[1], now)
return waits
