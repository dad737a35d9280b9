-- Requeue: puts a copy of a dead letter into its lane, as an entry of a request of its own.
--
-- KEYS[1]   backlog hash      KEYS[2] dead letters      KEYS[3..] lanes, in the order of keys.LANES
-- ARGV[1]   id of the letter      ARGV[2] request id under which it is answered      ARGV[3] ms until its deadline
--
-- Returns {"ok", entry id, lane index (from 0), inputs, cost}; or {"gone"} when there is no such letter, {"no body"}
-- when its body was too long to be kept, {"unreadable"} when somebody wrote it by hand.
-- A letter of a lane that is no more goes to the first. The letter itself stays.
local found = redis.call('XRANGE', KEYS[2], ARGV[1], ARGV[1])[1]
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
local deadline = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]
local entry = {'id', ARGV[2], 'v', fields.v, 'n', fields.n, 'pos', fields.pos, 'cost', fields.cost,
               'deadline_ms', string.format('%d', deadline)}
for _, name in ipairs({'tenant', 'traceparent', 'body'}) do
  if fields[name] then
    entry[#entry + 1] = name
    entry[#entry + 1] = fields[name]
  end
end
local id = add_entry(KEYS[lane], time, ARGV[2], entry)
if depth == 0 then
  redis.call('DEL', KEYS[1])  -- nothing was there, so whatever the counters said had drifted
end
count(lane - 3, fields.n, fields.cost)
write_count(KEYS[1], 1)
return {'ok', id, lane - 3, tonumber(fields.n), tonumber(fields.cost)}
