-- Of the cache: two generations, so that what nobody asks for goes without a list of who asked for what.
--
-- A generation is full at half of the bytes. Then the elder is dropped, and a new one begins. KEYS and ARGV are those of
-- cached.lua and cache_put.lua.
local CACHE_OVERHEAD = 96 -- of Redis for a field and its value in a hash
local CACHE_ROUNDING = 1.25 -- jemalloc gives up to a quarter more than it is asked for

local function cache_generations()
  local number = tonumber(redis.call('HGET', KEYS[1], 'generation') or '0')
  return KEYS[2 + number % 2], KEYS[2 + (number + 1) % 2]
end

-- Puts a value into the younger generation; returns the generations as they are after that.
local function cache_keep(young, old, name, value)
  local most, ttl_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
  local size = math.ceil(#name + #value * CACHE_ROUNDING) + CACHE_OVERHEAD
  if redis.call('HSET', young, name, value) == 1 then
    if redis.call('HLEN', young) == 1 then -- it begins, or begins anew after its time
      redis.call('HSET', KEYS[1], 'bytes', 0)
      redis.call('PEXPIRE', young, 2 * ttl_ms)
      redis.call('PEXPIRE', KEYS[1], 4 * ttl_ms)
    end
    if redis.call('HINCRBY', KEYS[1], 'bytes', size) * 2 >= most then
      redis.call('HINCRBY', KEYS[1], 'generation', 1)
      redis.call('HSET', KEYS[1], 'bytes', 0)
      redis.call('UNLINK', old)
      return old, young
    end
  end
  return young, old
end
