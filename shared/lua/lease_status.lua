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
local num_sets = unpack(ARGV, 1, 1)
local last_waiting = 2 * tonumber(num_sets)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting, slots = {}, {}
for i = 1, last_waiting, 2 do
  local found = {}
  local first = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
  for j = 1, #first, 2 do
    local last = redis.call('HGET', KEYS[i + 1], first[j])
    found[#found + 1] = first[j]
    found[#found + 1] = tonumber(first[j + 1])
    found[#found + 1] = tonumber(last or 0)
  end
  waiting[#waiting + 1] = found
end
for i = last_waiting + 1, #KEYS do
  slots[#slots + 1] = {redis.call('GET', KEYS[i]) or '', redis.call('PTTL', KEYS[i])}
end
return {now, waiting, slots}
