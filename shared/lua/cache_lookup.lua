-- Cache lookup: looks vectors up. A vector found only in the older generation moves to the younger: it is still in use.
--
-- KEYS[1]   meta: hash with the number of the younger generation, and its bytes
-- KEYS[2,3] the generations, hashes of values by name; the younger one is KEYS[2 + number % 2]
-- ARGV
--   max_bytes maximum bytes of both generations together
--   ttl_ms    lifetime of a vector
-- then, to the end, the names to look up
--
-- Returns now (ms) and, for each name, its value, or false.
-- (cache_generations.lua is prepended to this.)
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
      young, old = cache_insert(young, old, name, value)
    end
  end
  found[#found + 1] = value
end
return found
