-- Reclaim: takes over entries that were delivered and not renewed for a while, from any consumer or from one.
--
-- KEYS      lanes
-- ARGV: ReclaimArguments
--   group              consumer group
--   consumer           the worker that takes them
--   min_idle_ms        minimum idle time
--   max_entries        maximum entries
--   owner              consumer to take from, or "" for any
--   issued_ms          when this call was issued (Redis' clock)
--   max_delay_ms       the call is too late, and takes nothing, if it arrives later than this after issued_ms
--   begun_prefix       prefix of the keys of begun entries
--   worker_prefix      prefix of the keys of heartbeats
--   restarted          "1" if this consumer has just started, so that it may have died under its name before
--   revision           revision of the model that it serves, or "" to take entries for any revision. An entry whose field
--                      `revision` names another is left to other workers until its deadline has passed
--   released_consumer  consumer that holds entries that were handed back
--   max_bytes          about the maximum bytes of the bodies; one entry may exceed it
--   cursor             the search goes on behind this entry, "<lane>/<id>"; "": from the start
-- Also reads the begun entries and the heartbeat of each consumer that it finds, keys of the same slot.
--
-- Returns {now_ms, {{{id, {field, value, ...}}, retry count, 1 if it was handed back}, ... } for each lane, cursor}, or
-- {now_ms} if it came too late: after a stall of Redis every entry looks abandoned, and a worker that issued its call
-- before the stall must not get them. The cursor is empty once all lanes were searched to the end.
-- Only a worker that searches its own entries, idle or not, needs the cursor: what others take is no longer idle, and
-- records without an entry are acknowledged away.
local group, consumer, min_idle_ms, max_entries, owner, issued_ms, max_delay_ms, begun_prefix, worker_prefix, restarted,
      revision, released_consumer, max_bytes, cursor = unpack(ARGV, 1, 14)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now - issued_ms > tonumber(max_delay_ms) then
  return {now}
end

local begun, is_counted = {}, false
local function has_begun(holder, lane, id)
  if not begun[holder] then
    begun[holder] = {}
    for name in string.gmatch(redis.call('GET', begun_prefix .. holder) or '', '%S+') do
      begun[holder][name] = true
    end
  end
  return begun[holder][lane .. '/' .. id]
end

-- Whether an entry is for workers of another revision.
local function is_for_others(fields)
  local wanted, deadline_ms = '', 0
  for f = 1, #fields, 2 do
    if fields[f] == 'revision' then
      wanted = fields[f + 1]
    elseif fields[f] == 'deadline_ms' then
      deadline_ms = tonumber(fields[f + 1]) or 0
    end
  end
  return wanted ~= '' and revision ~= '' and wanted ~= revision and now < deadline_ms
end

-- Returns a page of the pending records of a lane, from an id on.
local num_left, bytes_left = tonumber(max_entries), tonumber(max_bytes)
local PAGE, MAX_PAGES = num_left + 256, 8
local function pending_from(lane, start)
  local query = {lane, group, 'IDLE', min_idle_ms, start, '+', PAGE}
  if owner ~= '' then
    query[8] = owner
  end
  return redis.pcall('XPENDING', unpack(query))
end

-- Read all lanes before any entry is taken: if a lane has no group, the script ends here.
local cursor_lane, cursor_id = string.match(cursor, '^(%d+)/(.+)$')
cursor_lane = tonumber(cursor_lane or 0)
local pending = {}
for i, lane in ipairs(KEYS) do
  local start = i - 1 < cursor_lane and '+' or i - 1 == cursor_lane and cursor_id and '(' .. cursor_id or '-'
  pending[i] = pending_from(lane, start)
  if pending[i].err then
    return pending[i]
  end
end

-- Takes over a pending record, unless it is for others. Returns the entry's row of the reply, or nil.
local function take_over(lane_index, row)
  local lane, id, holder, count = KEYS[lane_index], row[1], row[2], row[4]
  local found = redis.call('XRANGE', lane, id, id)
  if not found[1] then
    redis.call('XACK', lane, group, id)
    return nil
  end
  if is_for_others(found[1][2]) then
    return nil
  end
  local is_begun = (holder ~= consumer or restarted == '1') and has_begun(holder, lane_index - 1, id)
  if is_begun then
    count = count + 1
  end
  redis.call('XCLAIM', lane, group, consumer, 0, id, 'RETRYCOUNT', count, 'JUSTID')
  if is_begun and holder == consumer then
    begun[holder][(lane_index - 1) .. '/' .. id] = nil
    is_counted = true
  end
  local _, num_bytes = measure_entry(found[1][2])
  num_left, bytes_left = num_left - 1, bytes_left - num_bytes
  return {found[1], count, holder == released_consumer and 1 or 0}
end

local last_seen = cursor
-- Takes over entries of a lane. Returns their rows, and whether its search has not come to the end.
local function search(lane_index)
  local taken, rows, num_pages = {}, pending[lane_index], 1
  while #rows > 0 do
    for _, row in ipairs(rows) do
      if num_left <= 0 or bytes_left <= 0 then
        return taken, true
      end
      taken[#taken + 1] = take_over(lane_index, row)
      last_seen = (lane_index - 1) .. '/' .. row[1]
    end
    if #rows < PAGE then
      return taken, false
    elseif num_pages == MAX_PAGES then  -- the rest was for other revisions
      return taken, true
    end
    rows, num_pages = pending_from(KEYS[lane_index], '(' .. rows[#rows][1]), num_pages + 1
  end
  return taken, false
end

local lanes, next_cursor = {}, ''
for i in ipairs(KEYS) do
  local is_unfinished
  lanes[i], is_unfinished = search(i)
  if is_unfinished and next_cursor == '' then
    next_cursor = last_seen
  end
end

-- A consumer that is neither alive nor owes any entry is only a name. The record of its begun entries stays while it
-- owes an entry in any lane: the worker that takes that entry over counts the attempt.
local owed_by = {}
for _, lane in ipairs(KEYS) do
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', lane, group)) do
    owed_by[info[2]] = (owed_by[info[2]] or 0) + info[4]
  end
end
for name, number in pairs(owed_by) do
  if number == 0 and name ~= consumer and redis.call('EXISTS', worker_prefix .. name) == 0 then
    for _, lane in ipairs(KEYS) do
      redis.call('XGROUP', 'DELCONSUMER', lane, group, name)
    end
    redis.call('DEL', begun_prefix .. name)
  end
end
-- An attempt that is counted now must not be counted again, also if this search is repeated from the start.
if restarted == '1' and next_cursor == '' then
  redis.call('DEL', begun_prefix .. consumer)
elseif is_counted then
  local names = {}
  for name in pairs(begun[consumer]) do
    names[#names + 1] = name
  end
  redis.call('SET', begun_prefix .. consumer, table.concat(names, ' '), 'KEEPTTL')
end
return {now, lanes, next_cursor}
