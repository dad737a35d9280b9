-- Stands before the text of the script that takes requests in, and knows what tenants have left.
--
-- A field of the hash is a tenant, its value "<tokens in its bucket> <tokens of its share> <ms of Redis' clock>
-- <day> <tokens that it has spent on this day> <weight>", as of the moment of its last request.
-- Limits come as "<tokens a second> <tokens at once> <tokens a day> <weight> <share, in tokens a second> <most tokens
-- in the second lane with this request>"; 0 is no limit, and of a share that it is not known.
local DAY_MS, SHARE_S, IDLE_MS, MOST_TENANTS, FULL = 86400000, 2, 60000, 4096, 1e15
local tenants, crowded = {}, false

local function numbers(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do
    found[#found + 1] = tonumber(word) or 0
  end
  return found
end

-- Returns what stands in a bucket; what somebody wrote there by hand may be no number.
local function level(saved)
  return saved and saved == saved and math.abs(saved) <= FULL and saved or FULL
end

-- Returns what a tenant has left now. Of too many, those that are new are one: that without a name.
local function tenant_of(key, name, text, now)
  local limits = numbers(text)
  local tenant = tenants[name]
  if not tenant then
    local saved = redis.call('HGET', key, name)
    if not saved and name ~= '' and redis.call('HLEN', key) >= MOST_TENANTS then
      crowded = true
      return tenant_of(key, '', text, now)
    end
    local left = numbers(saved or '')
    tenant = {bucket = level(left[1]), share = level(left[2]), at = left[3] or now, day = left[4] or 0,
              spent = left[5] or 0}
    tenants[name] = tenant
  end
  local past = math.max(0, now - tenant.at) / 1000
  tenant.at, tenant.weight = now, limits[4]
  tenant.bucket = limits[1] > 0 and math.min(limits[2], tenant.bucket + past * limits[1]) or FULL
  tenant.share = limits[5] > 0 and math.min(limits[5] * SHARE_S, tenant.share + past * limits[5]) or FULL
  local day = math.floor(now / DAY_MS)
  if tenant.day ~= day then
    tenant.day, tenant.spent = day, 0
  end
  return tenant, limits
end

-- Returns after how many ms a tenant may have so many tokens; 0: now. What costs more than its bucket holds goes when
-- that is full, and the next waits the longer.
local function wait_of(tenant, limits, cost, now)
  local daily = limits[3]
  if daily > 0 and tenant.spent > 0 and tenant.spent + cost > daily then
    return (tenant.day + 1) * DAY_MS - now
  end
  local missing = math.min(cost, limits[2]) - tenant.bucket
  if limits[1] > 0 and missing > 0 then
    return math.ceil(1000 * missing / limits[1])
  end
  return 0
end

-- Whether a tenant has had its share of the first lane.
local function is_over_share(tenant, limits, cost)
  return limits[5] > 0 and tenant.share < math.min(cost, limits[5] * SHARE_S)
end

-- Takes off what a tenant gets, in the first lane or behind it.
local function spend(tenant, limits, cost, in_first)
  tenant.has_had = true
  tenant.bucket = tenant.bucket - cost
  if limits[3] > 0 then
    tenant.spent = tenant.spent + cost
  end
  if in_first then
    tenant.share = tenant.share - cost
  end
end

-- Forgets those that are as good as new, so that there is room for others.
local function forget_idle(key, now)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local saved = numbers(all[i + 1])
    local spent = saved[4] == math.floor(now / DAY_MS) and saved[5] or 0
    if now - (saved[3] or 0) > IDLE_MS and spent == 0 then
      redis.call('HDEL', key, all[i])
    end
  end
end

-- Writes down what is left to those that have had something: who was refused is as it was, and not active by that.
local function write_tenants(key, now)
  local fields = {}
  for name, each in pairs(tenants) do
    if each.has_had then
      fields[#fields + 1] = name
      fields[#fields + 1] = string.format('%.1f %.1f %.0f %.0f %.0f %.3f', each.bucket, each.share, each.at, each.day,
                                          each.spent, each.weight)
    end
  end
  if fields[1] then
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, DAY_MS)
  end
  if crowded then
    forget_idle(key, now)
  end
end

