-- Reconcile: finds the state of outstanding requests: their replies, and which of their entries are in no stream.
--
-- KEYS[1]   epoch      KEYS[2..1+L] lanes; after them one reply key for each request
-- ARGV: ReconcileArguments
--   num_lanes     number of lanes L
--   num_requests  number of requests that follow
-- then, num_requests times, ReconcileRequestRow
--   request_id    id of the request
--   num_entries   number of its outstanding entries
-- and, after each of them, num_entries times, ReconcileEntryRow
--   lane          index of the lane, from 0
--   entry_id      stream id of the entry
--
-- Returns {epoch or "", {for each request {{reply, ...}, {1 or 0 for each entry: whether it is still in the stream}}}}.
-- An entry that is neither answered nor in the stream is lost, and only its gateway can add it again. The gateway does
-- that with a submit that names the epoch: at another Redis, or in another life of the data, it adds nothing.
local num_lanes, num_requests = unpack(ARGV, 1, 2)
local MAX_REPLIES = 65536
local results = {}
local at = 3
for r = 1, tonumber(num_requests) do
  local request_id, num_entries = unpack(ARGV, at, at + 1)
  local present = {}
  at = at + 2
  for e = 1, tonumber(num_entries) do
    local lane, entry_id = unpack(ARGV, at, at + 1)
    local found = redis.call('XRANGE', KEYS[2 + lane], entry_id, entry_id)[1]
    present[e] = found and found[2][2] == request_id and 1 or 0  -- submit writes the request's id first
    at = at + 2
  end
  results[r] = {redis.call('LPOP', KEYS[1 + num_lanes + r], MAX_REPLIES) or {}, present}
end
return {redis.call('GET', KEYS[1]) or '', results}
