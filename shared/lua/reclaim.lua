-- Reclaim: takes over entries that were delivered and not renewed for a while, by any consumer or by one.
--
-- KEYS      lanes
-- ARGV[1]   group      ARGV[2] consumer that takes them
-- ARGV[3]   least idle time, ms      ARGV[4] most entries
-- ARGV[5]   consumer to take from, or "" for any
-- ARGV[6]   when this call was issued (Redis' clock, ms)      ARGV[7] ms after which it is too late to obey it
-- ARGV[8]   what the keys of begun entries begin with      ARGV[9] what heartbeat keys begin with
-- ARGV[10]  "1" if this consumer has only just come to life, so that it may have died under its name before
-- ARGV[11]  revision of the model that it has, or "" to take what is for any: an entry whose field `revision` names
--           another is left to others, until its deadline has passed
-- ARGV[12]  consumer that keeps what was handed back
-- Also reads these two keys for each consumer that it finds, of the same slot.
--
-- Returns {now_ms, {{{id, {field, value, ...}}, retry count, 1 if it was handed back}, ... } for each lane}, or {now_ms}
-- when it came too late: after a stall of Redis every entry looks abandoned, and whoever asked before the stall must not
-- have them.
-- Needs no cursor: what is taken is no longer idle, and what has no body is acknowledged away.
local group, me, idle, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now - ARGV[6] > tonumber(ARGV[7]) then
  return {now}
end

local begun = {}
local function has_begun(consumer, lane, id)
  if not begun[consumer] then
    begun[consumer] = {}
    for name in string.gmatch(redis.call('GET', ARGV[8] .. consumer) or '', '%S+') do
      begun[consumer][name] = true
    end
  end
  return begun[consumer][lane .. '/' .. id]
end

-- Whether an entry is for workers of another revision.
local function is_others(fields)
  local revision, deadline = '', 0
  for f = 1, #fields, 2 do
    if fields[f] == 'revision' then
      revision = fields[f + 1]
    elseif fields[f] == 'deadline_ms' then
      deadline = tonumber(fields[f + 1]) or 0
    end
  end
  return revision ~= '' and ARGV[11] ~= '' and revision ~= ARGV[11] and now < deadline
end

-- Returns a page of what is pending in a lane, from an id on.
local PAGE, PAGES = most + 256, 8
local function pending_from(lane, start)
  local query = {lane, group, 'IDLE', idle, start, '+', PAGE}
  if ARGV[5] ~= '' then
    query[8] = ARGV[5]
  end
  return redis.pcall('XPENDING', unpack(query))
end

-- Before anything is taken: where a lane has no group, this ends here.
local pending = {}
for i, lane in ipairs(KEYS) do
  pending[i] = pending_from(lane, '-')
  if pending[i].err then
    return pending[i]
  end
end

local lanes = {}
for i, lane in ipairs(KEYS) do
  local taken, rows, pages = {}, pending[i], 1
  while rows do
    for _, row in ipairs(rows) do
      if #taken >= most then
        break
      end
      local id, owner, count = row[1], row[2], row[4]
      local found = redis.call('XRANGE', lane, id, id)
      if not found[1] then
        redis.call('XACK', lane, group, id)
      elseif not is_others(found[1][2]) then
        if (owner ~= me or ARGV[10] == '1') and has_begun(owner, i - 1, id) then
          count = count + 1
        end
        redis.call('XCLAIM', lane, group, me, 0, id, 'RETRYCOUNT', count, 'JUSTID')
        taken[#taken + 1] = {found[1], count, owner == ARGV[12] and 1 or 0}
      end
    end
    pages = pages + 1
    if #rows == PAGE and #taken < most and pages <= PAGES then  -- the rest was for others
      rows = pending_from(lane, '(' .. rows[#rows][1])
    else
      rows = nil
    end
  end
  lanes[i] = taken
  most = most - #taken
end

-- A consumer that is neither alive nor owes anything is only a name. What it had begun is told as long as it owes
-- something in any lane: whoever takes that over counts the attempt.
local owes = {}
for _, lane in ipairs(KEYS) do
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', lane, group)) do
    owes[info[2]] = (owes[info[2]] or 0) + info[4]
  end
end
for name, number in pairs(owes) do
  if number == 0 and name ~= me and redis.call('EXISTS', ARGV[9] .. name) == 0 then
    for _, lane in ipairs(KEYS) do
      redis.call('XGROUP', 'DELCONSUMER', lane, group, name)
    end
    redis.call('DEL', ARGV[8] .. name)
  end
end
if ARGV[10] == '1' then
  redis.call('DEL', ARGV[8] .. me)  -- it is counted, once
end
return {now, lanes}
