-- Usage add: adds what a process has counted to the rows of an hour.
--
-- KEYS[1]   record of what this process added last
-- ARGV: UsageAddArguments
--   sequence_number  number of this call; grows with each call of a process
--   age_ms           how long ago it was counted: the hour is that of the time before
--   hour_prefix      prefix of the keys of hours, in the slot of KEYS[1]
--   max_rows         maximum rows of an hour
--   other            tenant that further rows are added to
--   record_ttl_ms    lifetime of the record
--   hour_ttl_ms      lifetime of an hour
--   num_rows         number of rows that follow
-- then, num_rows times, UsageRow
--   tenant           tenant, or ""
--   queue            queue, or ""
--   op               operation, or ""
--   requests         requests that were answered
--   refusals         requests that were refused
--   failures         requests that failed
--   inputs           inputs
--   tokens           tokens
--   cached_tokens    tokens from the cache
--   device_us        time of the device
--
-- Returns 1; 0 if it was added before: the reply to an earlier call was lost.
-- A row is a field of the hash of its hour: its names, and its counts in this order, each separated by spaces.
local sequence_number, age_ms, hour_prefix, max_rows, other, record_ttl_ms, hour_ttl_ms, num_rows = unpack(ARGV, 1, 8)
local FIRST_ROW, ROW_SIZE, HOUR_MS = 9, 10, 3600000
if tonumber(sequence_number) <= tonumber(redis.call('GET', KEYS[1]) or 0) then
  return 0
end
redis.call('SET', KEYS[1], sequence_number, 'PX', record_ttl_ms)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key = hour_prefix .. string.format('%d', math.floor((now - age_ms) / HOUR_MS))
local num_present = redis.call('HLEN', key)

for r = 0, num_rows - 1 do
  local at = FIRST_ROW + ROW_SIZE * r
  local tenant, queue, op, requests, refusals, failures, inputs, tokens, cached_tokens,
        device_us = unpack(ARGV, at, at + 9)
  local names = table.concat({tenant, queue, op}, ' ')
  local present = redis.call('HGET', key, names)
  if not present and num_present >= tonumber(max_rows) and tenant ~= other then
    names = table.concat({other, queue, op}, ' ')
    present = redis.call('HGET', key, names)
  end
  if not present then
    num_present = num_present + 1
  end
  local sums, before = {}, string.gmatch(present or '', '%d+')
  for i, count in ipairs({requests, refusals, failures, inputs, tokens, cached_tokens, device_us}) do
    sums[i] = string.format('%.0f', (before() or 0) + count)
  end
  redis.call('HSET', key, names, table.concat(sums, ' '))
end
redis.call('PEXPIRE', key, hour_ttl_ms)
return 1
