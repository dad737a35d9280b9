-- Stands before the text of each script that adds entries or takes them away, and counts these for the backlog hash.
-- Its fields: inputs and tokens of all lanes; bulk_tokens of those behind the first.
local counted = {inputs = 0, tokens = 0, bulk_tokens = 0}

-- Counts an entry of the lane with that index (from 0): one that goes the other way by negative numbers.
local function count(lane, inputs, tokens)
  counted.inputs = counted.inputs + inputs
  counted.tokens = counted.tokens + tokens
  if tonumber(lane) > 0 then
    counted.bulk_tokens = counted.bulk_tokens + tokens
  end
end

-- Adds what was counted (sign 1), or takes it off (sign -1).
local function write_count(key, sign)
  for _, name in ipairs({'inputs', 'tokens', 'bulk_tokens'}) do
    if counted[name] ~= 0 and redis.call('HINCRBY', key, name, sign * counted[name]) < 0 then
      redis.call('DEL', key)  -- somebody added entries by hand, uncounted
      return
    end
  end
end

