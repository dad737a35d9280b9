-- Commit: answers entries. The first answer to an entry counts.
--
-- KEYS[1]   backlog hash      KEYS[2] dead letters
-- KEYS[3]   open jobs      KEYS[4] hash of what jobs are owed      KEYS[5] results stream
-- KEYS[6]   jobs that are kept
-- KEYS[7 .. 6+L]  the L lanes; after them the reply keys and the bells, which rows name by their index in KEYS
-- ARGV: CommitArguments
--   group                consumer group
--   num_lanes            number of lanes L
--   grace_ms             how long a reply outlives its deadline
--   bell_ttl_ms          how long a bell outlives its last ring
--   worker               the worker that commits
--   max_dead_letters     maximum dead letters kept
--   max_dead_body_bytes  longest body that a dead letter keeps
--   job_prefix           prefix of the keys of jobs
--   max_results          maximum results kept in the results stream
--   revision             revision of the model that gave the answers
--   num_entries          number of entries that follow
-- then, num_entries times, CommitRow
--   lane                 index of the lane, from 0
--   entry_id             stream id of the entry
--   n                    inputs
--   cost                 estimated tokens
--   counted_bytes        bytes that count against the bound of the queue
--   deadline_ms          deadline of the request (Redis' clock)
--   request_id           id of the request
--   reply_key            index of the reply key in KEYS; 0: there is no request to answer
--   bell_key             index of the bell in KEYS; 0: none
--   reply                the encoded reply
--   attempts             runs, for the dead letter
--   died_of              error for the dead letter; "": this entry is no dead letter
--   job_position         position in its job; "": the entry belongs to no job
--   num_failed           inputs that failed
--   num_truncated        inputs that were cut to the model's maximum length
--
-- Manual changes to a job must not keep other requests from their answers, so an error in a job is ignored.
-- Returns {now_ms, {1 or 0 for each entry}}: whether this commit was the one that counted.
-- XDEL shows whether the entry is still owed: answering and cancelling both delete it. The entry may be pending with
-- another worker, or not be delivered at all since the group was created again: the answer is just as good. Where XDEL
-- finds nothing, nothing is touched. XACK comes first because Redis allows it when memory is full, and after it allows
-- the push too; one XACK for all entries of a lane takes a third of the time of one for each.
local group, num_lanes, grace_ms, bell_ttl_ms, worker, max_dead_letters, max_dead_body_bytes, job_prefix, max_results,
      revision, num_entries = unpack(ARGV, 1, 11)
local FIRST_LANE, FIRST_ROW, ROW_SIZE = 7, 12, 15
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs = {open = KEYS[3], owed = KEYS[4], results = KEYS[5], kept = KEYS[6], prefix = job_prefix,
              max_results = max_results, revision = revision}
local rung, bells = {}, {}
local results = {}

-- Returns the fields of a dead letter: first how the entry died, then the entry's fields. A long body is left out.
local function dead_letter(lane_key, entry_id, attempts, died_of)
  local entry = redis.call('XRANGE', lane_key, entry_id, entry_id)[1]
  if not entry or max_dead_letters == '0' then
    return nil
  end
  local fields = {'lane', string.match(lane_key, '[^:]+$'), 'entry', entry_id, 'attempts', attempts, 'error', died_of,
                  'worker', worker}
  for i = 1, #entry[2], 2 do
    if entry[2][i] ~= 'body' or #entry[2][i + 1] <= tonumber(max_dead_body_bytes) then
      fields[#fields + 1] = entry[2][i]
      fields[#fields + 1] = entry[2][i + 1]
    end
  end
  return fields
end

local ids_by_lane = {}
for e = 0, num_entries - 1 do
  local at = FIRST_ROW + ROW_SIZE * e
  local lane, entry_id = unpack(ARGV, at, at + 1)
  local ids = ids_by_lane[lane] or {}
  ids_by_lane[lane] = ids
  ids[#ids + 1] = entry_id
end
for lane, ids in pairs(ids_by_lane) do
  redis.call('XACK', KEYS[FIRST_LANE + lane], group, unpack(ids))
end

for e = 1, tonumber(num_entries) do
  local at = FIRST_ROW + ROW_SIZE * (e - 1)
  local lane, entry_id, n, cost, counted_bytes, deadline_ms, request_id, reply_key, bell_key, reply, attempts, died_of,
        job_position, num_failed, num_truncated = unpack(ARGV, at, at + 14)
  local lane_key = KEYS[FIRST_LANE + lane]
  local won = 0
  local letter = died_of ~= '' and dead_letter(lane_key, entry_id, attempts, died_of)
  if redis.call('XDEL', lane_key, entry_id) == 1 then
    won = 1
    if letter then
      redis.call('XADD', KEYS[2], 'MAXLEN', max_dead_letters, '*', unpack(letter))
    end
    count_entry(lane, n, cost, counted_bytes)
    if job_position ~= '' then
      local counts = {failed = tonumber(num_failed), truncated = tonumber(num_truncated)}
      pcall(store_reply, jobs, request_id, entry_id, job_position, tonumber(n), cost, counts, reply, now)
    elseif reply_key ~= '0' then
      local key = KEYS[tonumber(reply_key)]
      redis.call('RPUSH', key, reply)
      redis.call('PEXPIRE', key, string.format('%d', math.max(0, deadline_ms - now) + grace_ms))
      if bell_key ~= '0' then
        local ids = rung[bell_key]
        if not ids then
          ids = {}
          rung[bell_key] = ids
          bells[#bells + 1] = bell_key
        end
        ids[#ids + 1] = request_id
      end
    end
  end
  results[e] = won
end

-- One element for each gateway names all requests that are ready: one pop wakes the gateway once.
for _, bell_key in ipairs(bells) do
  local key = KEYS[tonumber(bell_key)]
  redis.call('RPUSH', key, table.concat(rung[bell_key], ' '))
  redis.call('PEXPIRE', key, bell_ttl_ms)
end
write_counts(KEYS[1], -1)
return {now, results}
