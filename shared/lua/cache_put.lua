-- Cache put: keeps vectors, unless Redis is short of memory: then its write fails, and with it the call.
--
-- KEYS, ARGV[1,2] as in cached.lua
-- ARGV[3...]      name, value; name, value; ...
--
-- Returns 1.
-- (cache.lua stands before this.)
local young, old = cache_generations()
for at = 3, #ARGV, 2 do
  young, old = cache_keep(young, old, ARGV[at], ARGV[at + 1])
end
return 1
