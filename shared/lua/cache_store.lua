-- Cache store: stores vectors. If Redis is short of memory, the first write fails, and with it the call.
--
-- KEYS      as in cache_lookup.lua
-- ARGV
--   max_bytes maximum bytes of both generations together
--   ttl_ms    lifetime of a vector
-- then, to the end, CacheRow
--   name      digest of the model revision, the options and the input
--   value     the vector, encoded
--
-- Returns 1.
-- (cache_generations.lua is prepended to this.)
local young, old = cache_generations()
for at = 3, #ARGV, 2 do
  local name, value = unpack(ARGV, at, at + 1)
  young, old = cache_insert(young, old, name, value)
end
return 1
