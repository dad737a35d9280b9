-- Reconcile: what became of outstanding requests: their replies, and which of their entries are in no stream.
--
-- KEYS[1..L]  lanes; after them one reply key for each request
-- ARGV[1]   number of lanes L
-- ARGV[2]   number of requests; then for each: its id, number of outstanding entries;
--           then for each entry: lane index (from 0), entry id
--
-- Returns for each request {{reply, ...}, {1 or 0 for each entry: whether it is still in the stream}}.
-- An entry that is neither answered nor in the stream is lost, and only its gateway can add it again: so that the
-- gateway does with a submit, and nothing can change in between.
local lanes = tonumber(ARGV[1])
local results = {}
local at = 3
for r = 1, tonumber(ARGV[2]) do
  local there = {}
  local id, m = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  for e = 1, m do
    local found = redis.call('XRANGE', KEYS[1 + ARGV[at]], ARGV[at + 1], ARGV[at + 1])[1]
    there[e] = found and found[2][2] == id and 1 or 0  -- submit writes the request's id first
    at = at + 2
  end
  results[r] = {redis.call('LPOP', KEYS[lanes + r], 65536) or {}, there}
end
return results
