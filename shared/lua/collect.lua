-- Collect: pops replies of unknown size, until they take a number of bytes.
--
-- KEYS         a reply key for each request
-- ARGV
--   max_bytes  number of bytes after which no further reply is popped
--
-- Returns {number of keys from which all replies were popped, reply, ...}.
local max_bytes = unpack(ARGV, 1, 1)
local bytes_left, results = tonumber(max_bytes), {0}
for k, key in ipairs(KEYS) do
  local reply = redis.call('LPOP', key)
  while reply do
    results[#results + 1] = reply
    bytes_left = bytes_left - #reply
    if bytes_left <= 0 then
      return results
    end
    reply = redis.call('LPOP', key)
  end
  results[1] = k
end
return results
