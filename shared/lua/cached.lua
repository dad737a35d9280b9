-- Cached: looks vectors up. What is only in the elder of the two generations goes into the younger: it is still asked for.
--
-- KEYS[1]   meta: hash with the number of the younger generation, its bytes, and when it began
-- KEYS[2,3] the generations, hashes of values by name: the younger is the one of its number's parity
-- ARGV[1]   most bytes of both      ARGV[2] time to live, ms      ARGV[3...] names
--
-- Returns now (ms) and, for each name, its value, or false.
-- (cache.lua stands before this.)
local time = redis.call('TIME')
local found = { time[1] * 1000 + math.floor(time[2] / 1000) }
local young, old = cache_generations()
for at = 3, #ARGV do
  local name = ARGV[at]
  local value = redis.call('HGET', young, name)
  if not value then
    value = redis.call('HGET', old, name)
    if value then
      redis.call('HDEL', old, name)
      young, old = cache_keep(young, old, name, value)
    end
  end
  found[#found + 1] = value
end
return found
