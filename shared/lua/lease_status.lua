-- Lease status: the slots of a pool of GPUs, and who waits for them.
--
-- KEYS[1..] for each set of slots that workers accept: zset of its waiters, by the time of their first request, and
--           hash of the time of each waiter's last request
-- KEYS[..]  slots
-- ARGV
--   num_sets  number of these sets
--
-- Writes nothing. Returns {now_ms, {{waiter, ms of its first request, ms of its last request, ...} of
--          each set, ...}, {{holder and fence or "", ms left} of each slot, ...}}.
local num_sets = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting, slots = {}, {}
for i = 1, num_sets do
  local found = {}
  local first = redis.call('ZRANGE', KEYS[2 * i - 1], 0, -1, 'WITHSCORES')
  for j = 1, #first, 2 do
    local last = redis.call('HGET', KEYS[2 * i], first[j])
    found[#found + 1] = first[j]
    found[#found + 1] = tonumber(first[j + 1])
    found[#found + 1] = tonumber(last or 0)
  end
  waiting[i] = found
end
for i = 2 * num_sets + 1, #KEYS do
  slots[#slots + 1] = {redis.call('GET', KEYS[i]) or '', redis.call('PTTL', KEYS[i])}
end
return {now, waiting, slots}
