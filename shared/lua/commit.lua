-- Commit: answers some entries, each by whoever is first.
--
-- KEYS[1]   backlog hash      KEYS[2] dead letters
-- KEYS[3]   open jobs      KEYS[4] what jobs are owed      KEYS[5] results stream
-- KEYS[6 .. 5+L]  the L lanes; after them the reply keys and the bells that ARGV names by their index in KEYS
-- ARGV[1]   group      ARGV[2] number of lanes L      ARGV[3] ms that a reply outlives its deadline
-- ARGV[4]   ms that a bell outlives its last ring
-- ARGV[5]   worker that commits      ARGV[6] most dead letters      ARGV[7] most bytes of one's body
-- ARGV[8]   what keys of jobs begin with      ARGV[9] most results kept in the stream
-- ARGV[10]  revision of the model that gave the answers
-- ARGV[11]  number of entries; then for each:
--           lane index (from 0), entry id, inputs, cost, deadline_ms, request id,
--           index of the reply key (0: nobody to answer), index of the bell (0: none), reply,
--           attempts, what it died of ("" for an entry that did not: it is no dead letter),
--           position in its job ("" for one that is of no job), inputs that failed
--
-- What somebody has done to a job by hand must not keep others from their answers, so an error in it is passed over.
-- Returns {now_ms, {1 or 0 for each entry}}: whether this commit was the one that counted.
-- XDEL says whether the entry is still owed: whoever answers or cancels deletes it. It may be pending with another, or
-- not be delivered at all since the group was made anew: the answer is as good. Where XDEL finds nothing, nothing is
-- touched. XACK comes first because it is allowed when memory is full, after which the push is too; for all entries of a
-- lane at once, which takes a third of the time.
local group, grace, bell_ttl = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs = {open = KEYS[3], owed = KEYS[4], results = KEYS[5], prefix = ARGV[8], most = ARGV[9]}
jobs.revision = ARGV[10]
local rung, bells = {}, {}
local results = {}
local LANES, SIZE, FIRST = 6, 13, 12
local at = FIRST

-- Returns the fields of a dead letter: the entry's own behind those that say how it died. A long body is left out.
local function letter(lane, id, attempts, died_of)
  local entry = redis.call('XRANGE', lane, id, id)[1]
  if not entry or ARGV[6] == '0' then
    return nil
  end
  local fields = {'lane', string.match(lane, '[^:]+$'), 'entry', id, 'attempts', attempts, 'error', died_of,
                  'worker', ARGV[5]}
  for i = 1, #entry[2], 2 do
    if entry[2][i] ~= 'body' or #entry[2][i + 1] <= tonumber(ARGV[7]) then
      fields[#fields + 1] = entry[2][i]
      fields[#fields + 1] = entry[2][i + 1]
    end
  end
  return fields
end

local acked = {}
for e = 0, ARGV[11] - 1 do
  local lane = ARGV[FIRST + SIZE * e]
  acked[lane] = acked[lane] or {}
  acked[lane][#acked[lane] + 1] = ARGV[FIRST + SIZE * e + 1]
end
for lane, ids in pairs(acked) do
  redis.call('XACK', KEYS[LANES + lane], group, unpack(ids))
end

for e = 1, tonumber(ARGV[11]) do
  local lane, id = KEYS[LANES + ARGV[at]], ARGV[at + 1]
  local won = 0
  local dead = ARGV[at + 10] ~= '' and letter(lane, id, ARGV[at + 9], ARGV[at + 10])
  if redis.call('XDEL', lane, id) == 1 then
    won = 1
    if dead then
      redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[6], '*', unpack(dead))
    end
    count(ARGV[at], ARGV[at + 2], ARGV[at + 3])
    local reply_at, bell_at = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    if ARGV[at + 11] ~= '' then
      pcall(store, jobs, ARGV[at + 5], id, ARGV[at + 11], tonumber(ARGV[at + 2]), ARGV[at + 3],
            tonumber(ARGV[at + 12]), ARGV[at + 8], now)
    elseif reply_at > 0 then
      local reply = KEYS[reply_at]
      redis.call('RPUSH', reply, ARGV[at + 8])
      redis.call('PEXPIRE', reply, string.format('%d', math.max(0, ARGV[at + 4] - now) + grace))
      if bell_at > 0 then
        if not rung[bell_at] then
          rung[bell_at] = {}
          bells[#bells + 1] = bell_at
        end
        rung[bell_at][#rung[bell_at] + 1] = ARGV[at + 5]
      end
    end
  end
  results[e] = won
  at = at + SIZE
end

-- One element for each gateway, naming all that is ready: one pop wakes it once.
for _, bell_at in ipairs(bells) do
  redis.call('RPUSH', KEYS[bell_at], table.concat(rung[bell_at], ' '))
  redis.call('PEXPIRE', KEYS[bell_at], bell_ttl)
end
write_count(KEYS[1], -1)
return {now, results}
