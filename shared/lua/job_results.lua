-- Prepended, before job_end.lua, to each script that ends jobs.
--
-- Under the key of a job plus `:out` are its replies by position, as msgpack: see shared/codec.py.

-- Minimum bytes of a reply.
local MIN_REPLY_BYTES = 64

-- cmsgpack decodes no bins: a byte for the type, one, two or four bytes for the length, and the content.
local BIN_LENGTHS = {[0xc4] = '>B', [0xc5] = '>H', [0xc6] = '>I4'}

-- Returns the offset (from 0) after a bin, and its content.
local function decode_bin(data, at)
  local length, start = struct.unpack(BIN_LENGTHS[string.byte(data, at + 1)], data, at + 2)
  return start - 1 + length, string.sub(data, start, start + length - 1)
end

-- Returns the offset after an array of bins, and their contents.
local function decode_bins(data, at)
  local kind, contents, length, start = string.byte(data, at + 1), {}, nil, nil
  if kind < 0xdc then  -- up to 15 elements
    length, at = kind - 0x90, at + 1
  else
    length, start = struct.unpack(kind == 0xdc and '>H' or '>I4', data, at + 2)
    at = start - 1
  end
  for i = 1, length do
    at, contents[i] = decode_bin(data, at)
  end
  return at, contents
end

-- Returns the fields of a reply: a map of up to 15 of them.
local function decode_reply(data)
  local reply, at, name = {}, 1, nil
  for _ = 1, string.byte(data, 1) - 0x80 do
    at, name = cmsgpack.unpack_one(data, at)
    local decode = name == 'values' and decode_bins or name == 'data' and decode_bin or cmsgpack.unpack_one
    at, reply[name] = decode(data, at)
  end
  return reply
end

-- Returns the replies of a job in order; nil if these take more than max_bytes.
local function read_replies(out, max_bytes)
  if redis.call('HLEN', out) * MIN_REPLY_BYTES > max_bytes then
    return nil
  end
  local bytes = 0
  for _, position in ipairs(redis.call('HKEYS', out)) do
    bytes = bytes + redis.call('HSTRLEN', out, position)
    if bytes > max_bytes then
      return nil
    end
  end
  local replies, flat = {}, redis.call('HGETALL', out)
  for i = 2, #flat, 2 do
    replies[#replies + 1] = decode_reply(flat[i])
  end
  table.sort(replies, function(a, b) return a.pos < b.pos end)
  return replies
end

-- Returns the results of n inputs as fields: `outputs` as a JSON array with null for failed inputs, or `embeddings` as
-- float32 in rows of `dim`, with NaN for these; `errors` as a JSON array; and `truncated`, a JSON array, if inputs were
-- truncated. Returns nil if they take more than max_bytes, or if some are missing.
local function inline_results(out, op, n, max_bytes)
  local replies = read_replies(out, max_bytes)
  if not replies then
    return nil
  end
  local dim = 0
  for _, reply in ipairs(replies) do
    dim = reply.dim or dim
  end
  local failed_row = op == 'embed' and string.rep('\0\0\192\127', dim) or 'null'  -- NaN, little-endian
  local rows, errors, truncated, num_rows, bytes = {}, {}, {}, 0, 0
  for _, reply in ipairs(replies) do
    num_rows = num_rows + reply.n
    for i = 0, reply.code and reply.n - 1 or -1 do
      rows[#rows + 1] = failed_row
      errors[#errors + 1] = cjson.encode({index = reply.pos + i, code = reply.code, message = reply.message})
      bytes = bytes + #failed_row + #errors[#errors]
      if bytes > max_bytes then
        return nil
      end
    end
    for _, value in ipairs(reply.values or {reply.data}) do
      rows[#rows + 1] = value
    end
    for _, index in ipairs(reply.truncated or {}) do
      truncated[#truncated + 1] = reply.pos + index
    end
  end
  if num_rows ~= n then
    return nil
  end
  errors = '[' .. table.concat(errors, ',') .. ']'
  if op == 'embed' then
    local fields = {'embeddings', table.concat(rows), 'dim', dim, 'errors', errors}
    if #truncated > 0 then
      fields[#fields + 1] = 'truncated'
      fields[#fields + 1] = '[' .. table.concat(truncated, ',') .. ']'
    end
    return fields
  end
  return {'outputs', '[' .. table.concat(rows, ',') .. ']', 'errors', errors}
end

-- Returns the fields by which the results stream carries the results of a job: the results, or a link to them. A job
-- that was cancelled, or was created with max_inline_bytes below 0, has neither.
local function result_fields(prefix, id, status, op, n, max_inline_bytes)
  local max_bytes = tonumber(max_inline_bytes or -1)
  if max_bytes < 0 or status == 'cancelled' then
    return {}
  end
  if max_bytes > 0 and status ~= 'expired' and op ~= 'embed_all' then
    local is_ok, fields = pcall(inline_results, prefix .. id .. ':out', op, tonumber(n), max_bytes)
    if is_ok and fields then
      return fields
    end
  end
  return {'result_url', '/jobs/' .. string.match(prefix, '{(.*)}') .. '.' .. id .. '/result'}
end

