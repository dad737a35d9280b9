-- Stands before the text of each script that ends jobs, or brings them their results (see job_lanes.lua).
--
-- `of` names what these functions work on: open, owed and results (keys), prefix (of job keys), most (results kept in the
-- stream), and, for `store`, the revision of the model whose results they are.

-- Ends a job: says so in the results stream, and lets it go after its time.
local function end_job(of, id, status, now)
  local job = of.prefix .. id
  redis.call('HSET', job, 'status', status, 'finished_ms', now)
  redis.call('ZREM', of.open, id)
  local told = redis.call('HMGET', job, 'n', 'done', 'failed', 'ttl_ms')
  if of.most ~= '0' then
    redis.call('XADD', of.results, 'MAXLEN', of.most, '*', 'id', id, 'status', status, 'n', told[1], 'done', told[2],
               'failed', told[3])
  end
  redis.call('UNLINK', job .. ':in', job .. ':todo', job .. ':fed')
  for _, key in ipairs({job, job .. ':out', job .. ':failed'}) do
    redis.call('PEXPIRE', key, told[4])
  end
end

-- Stores the reply to an entry of a job. One that is not the job's any more changes nothing.
local function store(of, id, entry, pos, n, cost, failed, reply, now)
  local job = of.prefix .. id
  local status, revisions = unpack(redis.call('HMGET', job, 'status', 'revisions'))
  if not status or redis.call('HGET', job .. ':fed', pos) ~= entry then
    return
  end
  redis.call('HDEL', job .. ':fed', pos)
  redis.call('HDEL', job .. ':in', pos)
  redis.call('HSET', job .. ':out', pos, reply)
  redis.call('HINCRBY', of.owed, 'inputs', -n)
  redis.call('HINCRBY', of.owed, 'entries', -1)
  redis.call('HINCRBY', of.owed, 'tokens', -cost)
  if failed > 0 then
    redis.call('HINCRBY', job, 'failed', failed)
    redis.call('RPUSH', job .. ':failed', pos)
  end
  redis.call('HINCRBY', job, 'done', n - failed)
  if failed < n and of.revision ~= '' and not string.find(' ' .. (revisions or '') .. ' ', ' ' .. of.revision .. ' ', 1, true)
  then
    redis.call('HSET', job, 'revisions', revisions and revisions .. ' ' .. of.revision or of.revision)
  end
  if status == 'queued' then
    redis.call('HSET', job, 'status', 'running', 'started_ms', now)
  end
  local told = redis.call('HMGET', job, 'n', 'done', 'failed')
  if told[2] + told[3] >= tonumber(told[1]) then
    end_job(of, id, tonumber(told[2]) == 0 and 'failed' or 'done', now)
  end
end
