-- Collect: pops all replies that are ready for some requests.
--
-- KEYS      reply keys
-- Returns a list of replies for each key.
local replies = {}
for i, key in ipairs(KEYS) do
  replies[i] = redis.call('LPOP', key, 1024) or {}
end
return replies
