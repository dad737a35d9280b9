-- Prepended to each script that adds or removes entries: counts these for the backlog hash.
-- Fields of the hash: inputs, tokens and bytes of all lanes; bulk_tokens, the tokens of the lanes behind the first.
-- Bytes are those of entries with a field `size`: of functions, except for jobs.
local counted = {inputs = 0, tokens = 0, bulk_tokens = 0, bytes = 0}

-- Counts an entry of the lane with this index (from 0). Pass negative numbers to count in the opposite direction.
local function count_entry(lane, inputs, tokens, bytes)
  counted.inputs = counted.inputs + inputs
  counted.tokens = counted.tokens + tokens
  counted.bytes = counted.bytes + (bytes or 0)
  if tonumber(lane) > 0 then
    counted.bulk_tokens = counted.bulk_tokens + tokens
  end
end

-- Adds the counts to the hash (sign 1), or subtracts them (sign -1).
local function write_counts(key, sign)
  for _, name in ipairs({'inputs', 'tokens', 'bulk_tokens', 'bytes'}) do
    if counted[name] ~= 0 and redis.call('HINCRBY', key, name, sign * counted[name]) < 0 then
      redis.call('DEL', key)  -- entries were added by hand, uncounted
      return
    end
  end
end

