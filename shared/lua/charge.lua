-- Charge: charges tenants for tokens that no worker has to compute, or gives back those that none has computed.
--
-- KEYS[1]   tenants hash
-- ARGV: ChargeRow
--   tenant      tenant, or ""
--   limits      limits of the tenant (see tenant_limits.lua)
--   cost        tokens; negative ones are given back
--   may_refuse  "1" if nothing is charged while the tenant's quota does not allow these tokens; "0" if it is overdrawn
--   age_ms      at most how long ago the tokens were charged that are given back: on the day before, they no longer count
--
-- More such rows may follow. Returns {ms, limit} for each, as wait_for returns them; {0, ""}: done.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waits = {}
for at = 1, #ARGV, 5 do
  local tenant, limits, cost, may_refuse, age_ms = unpack(ARGV, at, at + 4)
  local account, parsed = load_tenant(KEYS[1], tenant, limits, now)
  local tokens, wait_ms, limit = tonumber(cost), 0, ''
  if tokens < 0 then
    refund(account, -tokens, math.floor((now - age_ms) / DAY_MS))
  else
    if may_refuse == '1' then
      wait_ms, limit = wait_for(account, parsed, tokens, now)
    end
    if wait_ms == 0 then
      charge(account, parsed, tokens, false)
    end
  end
  waits[#waits + 1] = {wait_ms, limit}
end
write_tenants(KEYS[1], now)
return waits
