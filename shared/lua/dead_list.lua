-- Dead list: dead letters without their bodies, which are long, newest first.
--
-- KEYS[1]   stream of dead letters
-- ARGV
--   before       those that are older than the letter with this id; all if empty
--   max_letters  maximum number
--
-- Writes nothing. Returns {{id, {name, value, ...}}, ...}, as XREVRANGE does.
local before, max_letters = unpack(ARGV, 1, 2)
local letters = redis.call('XREVRANGE', KEYS[1], before == '' and '+' or '(' .. before, '-', 'COUNT', max_letters)
for _, letter in ipairs(letters) do
  local fields = {}
  for i = 1, #letter[2], 2 do
    if letter[2][i] ~= 'body' then
      fields[#fields + 1] = letter[2][i]
      fields[#fields + 1] = letter[2][i + 1]
    end
  end
  letter[2] = fields
end
return letters
