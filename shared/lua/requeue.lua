-- Requeue: adds a copy of a dead letter to its lane, as an entry of a new request.
--
-- KEYS[1]   backlog hash      KEYS[2] dead letters      KEYS[3..] lanes, in the order of keys.LANES
-- ARGV
--   letter_id   id of the letter
--   request_id  id of the new request
--   budget_ms   time until its deadline
--
-- Returns {"ok", entry id, lane index (from 0), inputs, cost}; or {"gone"} if there is no such letter, {"no body"} if
-- its body was too long to be kept, {"unreadable"} if it was written by hand.
-- A letter whose lane does not exist any more goes to the first. The letter itself stays.
local letter_id, request_id, budget_ms = unpack(ARGV, 1, 3)
local found = redis.call('XRANGE', KEYS[2], letter_id, letter_id)[1]
if not found then
  return {'gone'}
end
local fields = {}
for i = 1, #found[2], 2 do
  fields[found[2][i]] = found[2][i + 1]
end
if not fields.body then
  return {'no body'}
end
for _, name in ipairs({'v', 'n', 'pos', 'cost'}) do
  if not string.match(fields[name] or '', '^%d+$') then
    return {'unreadable'}
  end
end
local depth = 0
for i = 3, #KEYS do
  depth = depth + redis.call('XLEN', KEYS[i])
end
local lane = 3
for i = 3, #KEYS do
  if string.match(KEYS[i], '[^:]+$') == fields.lane then
    lane = i
  end
end
local time = redis.call('TIME')
local deadline_ms = time[1] * 1000 + math.floor(time[2] / 1000) + budget_ms
local entry = {'id', request_id, 'v', fields.v, 'n', fields.n, 'pos', fields.pos, 'cost', fields.cost,
               'deadline_ms', string.format('%d', deadline_ms)}
for _, name in ipairs({'tenant', 'traceparent', 'body'}) do
  if fields[name] then
    entry[#entry + 1] = name
    entry[#entry + 1] = fields[name]
  end
end
local id = add_entry(KEYS[lane], time, request_id, entry)
if depth == 0 then
  redis.call('DEL', KEYS[1])  -- the lanes were empty, so the counters had drifted
end
count_entry(lane - 3, fields.n, fields.cost)
write_counts(KEYS[1], 1)
return {'ok', id, lane - 3, tonumber(fields.n), tonumber(fields.cost)}
