-- Collect: pops all replies that are ready for some requests, and for those that the bell announces further.
--
-- KEYS[1]   bell      KEYS[2..] reply keys
-- ARGV[1]   what reply keys begin with      ARGV[2] most elements to take off the bell, 0 to leave it alone
-- Also reads the reply keys that the bell names, of the same slot.
--
-- Returns a list of replies for each reply key, then one for each request that the bell named.
local replies = {}
for i = 2, #KEYS do
  replies[#replies + 1] = redis.call('LPOP', KEYS[i], 65536) or {}
end
if ARGV[2] ~= '0' then
  for _, rung in ipairs(redis.call('LPOP', KEYS[1], ARGV[2]) or {}) do
    for id in string.gmatch(rung, '%S+') do
      replies[#replies + 1] = redis.call('LPOP', ARGV[1] .. id, 65536) or {}
    end
  end
end
return replies
