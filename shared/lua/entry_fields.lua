-- Prepended to each script whose reply is bounded in bytes.

-- Returns the cost of an entry, the bytes of its body, and whether it states its size: then others may be far larger.
local function measure_entry(fields)
  local cost, num_bytes, is_sized = 1, 0, false
  for f = 1, #fields, 2 do
    if fields[f] == 'cost' then
      cost = tonumber(fields[f + 1]) or 1
    elseif fields[f] == 'body' then
      num_bytes = #fields[f + 1]
    elseif fields[f] == 'size' then
      is_sized = true
    end
  end
  return cost, num_bytes, is_sized
end

