-- Prepended to the scripts of the cache. The cache has two generations, so that vectors that are no longer requested
-- expire without a record of each use.
--
-- A generation is full at half of the cache's bytes. Then the older one is dropped, and a new one begins. KEYS and the
-- first two ARGV are those of cache_lookup.lua and cache_store.lua.
local CACHE_OVERHEAD = 96 -- bytes that Redis uses for a field and its value in a hash
local CACHE_ROUNDING = 1.25 -- jemalloc allocates up to a quarter more than requested
local max_bytes, ttl_ms = unpack(ARGV, 1, 2)

-- Returns the keys of the younger and the older generation.
local function cache_generations()
  local number = tonumber(redis.call('HGET', KEYS[1], 'generation') or '0')
  return KEYS[2 + number % 2], KEYS[2 + (number + 1) % 2]
end

-- Stores a value in the younger generation; returns the generations as they are afterwards.
local function cache_insert(young, old, name, value)
  local size = math.ceil(#name + #value * CACHE_ROUNDING) + CACHE_OVERHEAD
  if redis.call('HSET', young, name, value) == 1 then
    if redis.call('HLEN', young) == 1 then -- a new generation, or one that expired and begins again
      redis.call('HSET', KEYS[1], 'bytes', 0)
      redis.call('PEXPIRE', young, 2 * ttl_ms)
      redis.call('PEXPIRE', KEYS[1], 4 * ttl_ms)
    end
    if redis.call('HINCRBY', KEYS[1], 'bytes', size) * 2 >= tonumber(max_bytes) then
      redis.call('HINCRBY', KEYS[1], 'generation', 1)
      redis.call('HSET', KEYS[1], 'bytes', 0)
      redis.call('UNLINK', old)
      return old, young
    end
  end
  return young, old
end
