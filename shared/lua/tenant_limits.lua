-- Prepended to the scripts that accept requests: keeps account of what each tenant may still use.
--
-- A field of the hash is a tenant. Its value is "<tokens in its bucket> <tokens of its share> <ms of Redis' clock>
-- <day> <tokens used on this day> <weight> <ms at which it was last active>", at the time of its last accepted request.
-- It is active with requests for the first lane: jobs and other bulk take no share of that.
-- Limits are "<tokens a second> <tokens at once> <tokens a day> <weight> <share, in tokens a second> <maximum tokens
-- in the second lane including this request> <1 if no other tenant is active>". 0 means no limit; for the share, 0 means
-- that it is not known.
local DAY_MS, SHARE_S, IDLE_MS, MAX_TENANTS, FULL = 86400000, 2, 60000, 4096, 1e15
-- No tenant has this name. Its value is the time at which idle tenants were last removed.
local LAST_SWEEP, SWEEP_MS = ' swept', 1000
local accounts, needs_sweep = {}, false

local function parse_numbers(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do
    found[#found + 1] = tonumber(word) or 0
  end
  return found
end

-- Returns the level of a bucket. A value that was written by hand may be no number, or too large: such a bucket is full.
local function bucket_level(saved)
  return saved and saved == saved and math.abs(saved) <= FULL and saved or FULL
end

-- Returns the account of a tenant as of now, and its limits. Above MAX_TENANTS, new tenants share one account: that
-- without a name.
local function load_tenant(key, name, text, now)
  local limits = parse_numbers(text)
  local account = accounts[name]
  if not account then
    local saved = redis.call('HGET', key, name)
    if not saved and name ~= '' and redis.call('HLEN', key) > MAX_TENANTS then  -- LAST_SWEEP may be one of them
      needs_sweep = true
      return load_tenant(key, '', text, now)
    end
    local numbers = parse_numbers(saved or '')
    account = {bucket = bucket_level(numbers[1]), share = bucket_level(numbers[2]), updated_ms = numbers[3] or now,
               day = numbers[4] or 0, used = numbers[5] or 0, active_ms = numbers[7] or 0}
    accounts[name] = account
  end
  local elapsed_s = math.max(0, now - account.updated_ms) / 1000
  account.updated_ms, account.weight = now, limits[4]
  account.bucket = limits[1] > 0 and math.min(limits[2], account.bucket + elapsed_s * limits[1]) or FULL
  account.share = limits[5] > 0 and math.min(limits[5] * SHARE_S, account.share + elapsed_s * limits[5]) or FULL
  local day = math.floor(now / DAY_MS)
  if account.day ~= day then
    account.day, account.used = day, 0
  end
  return account, limits
end

-- Returns after how many ms a tenant may use these tokens, and the limit that they exceed until then: "rate" or "day";
-- 0 and "" if the tenant may use them now. A request that costs more than its bucket holds passes when the bucket is
-- full, and the next request waits accordingly longer. What is left of the day is never exceeded, so a request of more
-- than a whole day's tokens waits for ever: the caller knows, and says so.
local function wait_for(account, limits, cost, now)
  local max_a_day = limits[3]
  if max_a_day > 0 and account.used + cost > max_a_day then
    return (account.day + 1) * DAY_MS - now, 'day'
  end
  local missing = math.min(cost, limits[2]) - account.bucket
  if limits[1] > 0 and missing > 0 then
    return math.ceil(1000 * missing / limits[1]), 'rate'
  end
  return 0, ''
end

-- Whether a tenant has used its share of the first lane.
local function is_over_share(account, limits, cost)
  return limits[5] > 0 and account.share < math.min(cost, limits[5] * SHARE_S)
end

-- Whether tokens over the share fit into the first lane nevertheless: no other tenant is active, and the lane is short
-- enough for one that comes.
local function is_spare(limits, cost, ahead)
  return limits[7] == 1 and (ahead == 0 or ahead + cost <= limits[5] * SHARE_S)
end

-- Charges a tenant for tokens, which are of its share or not.
local function charge(account, limits, cost, uses_share)
  account.is_charged = true
  account.bucket = account.bucket - cost
  if limits[3] > 0 then
    account.used = account.used + cost
  end
  if uses_share then
    account.share = account.share - cost
  end
end

-- Gives a tenant back the tokens that it was charged on a day: what they were for is not to run, or is charged again.
local function refund(account, tokens, day)
  account.is_charged = true
  account.bucket = account.bucket + tokens
  if account.day == day then
    account.used = math.max(0, account.used - tokens)
  end
end

-- Removes the tenants whose account is as good as a new one, so that there is room for others. At most once a second:
-- it reads all accounts.
local function remove_idle(key, now)
  if math.abs(now - (tonumber(redis.call('HGET', key, LAST_SWEEP) or 0) or 0)) < SWEEP_MS then
    return
  end
  redis.call('HSET', key, LAST_SWEEP, string.format('%d', now))
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local saved = parse_numbers(all[i + 1])
    local used = saved[4] == math.floor(now / DAY_MS) and saved[5] or 0
    if all[i] ~= LAST_SWEEP and now - (saved[3] or 0) > IDLE_MS and used == 0 then
      redis.call('HDEL', key, all[i])
    end
  end
end

-- Writes the accounts of the tenants that were charged. A refusal changes no account, and does not make a tenant active.
local function write_tenants(key, now)
  local fields = {}
  for name, account in pairs(accounts) do
    if account.is_charged then
      fields[#fields + 1] = name
      fields[#fields + 1] = string.format('%.1f %.1f %.0f %.0f %.0f %.3f %.0f', account.bucket, account.share,
                                          account.updated_ms, account.day, account.used, account.weight, account.active_ms)
    end
  end
  if fields[1] then
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, DAY_MS)
  end
  if needs_sweep then
    remove_idle(key, now)
  end
end

