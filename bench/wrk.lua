-- Sends the bodies of a file in turn. At the end it prints the results: a line of figures, and a line of ticks, which are
-- times with the number of requests sent by then.
-- wrk ... -s wrk.lua URL -- BODIES CONNECTIONS CONNECT_MS

local ffi = require("ffi")

-- wrk 4's histogram: data[n] is the number of latencies of n microseconds.
ffi.cdef([[
typedef struct { uint64_t count; uint64_t limit; uint64_t min; uint64_t max; uint64_t data[]; } redbatch_stats;
typedef struct { long seconds; long micros; } redbatch_time;
int gettimeofday(redbatch_time *time, void *zone);
]])

local TICK_US = 20000
local clock = ffi.new("redbatch_time")

local function now_us()
  ffi.C.gettimeofday(clock, nil)
  return tonumber(clock.seconds) * 1000000 + tonumber(clock.micros)
end

local requests = {}
local sent = 0
local next_tick_us = 0
local threads = {}

-- `setup` and `done` run in another Lua state than `init` and `request`, which run in the state of a thread.
function setup(thread)
  threads[#threads + 1] = thread
end

-- Requests are formatted once: work for each request would be measured as the server's.
function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  for body in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format(nil, nil, nil, body)
  end
  connections = tonumber(args[2])
  ticks = {}
  connect_ms = tonumber(args[3])
  if connect_ms > 0 then
    begin_after(connect_ms)
  end
end

-- Opens all connections before the first request: otherwise, a server that accepts one connection per iteration of its
-- event loop would be measured by that. wrk calls `delay` before each request, at a cost too small to measure.
function begin_after(ms)
  local begin_us = now_us() + ms * 1000
  function delay()
    if begin_us then
      local left_ms = math.ceil((begin_us - now_us()) / 1000)
      if left_ms > 0 then
        return left_ms
      end
      begin_us = nil
    end
    return 0
  end
end

function request()
  local now = now_us()
  if now >= next_tick_us then
    ticks[#ticks + 1] = string.format("%d:%d", now, sent)
    next_tick_us = now + TICK_US
  end
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

-- wrk corrects for coordinated omission: for a latency over twice the mean it adds those that a fixed schedule would have
-- seen. There is no schedule here: each client waits for its answer. So the correction is undone: `added` is the count
-- that wrk added at n for the latency n + mean.
local function true_counts(stats, summary, connections)
  local rounds = math.floor(summary.requests / connections)
  local mean = rounds > 0 and math.floor(summary.duration / rounds) or math.huge
  return function(n)
    local beyond = n + mean
    local added = n > mean and beyond <= tonumber(stats.max) and tonumber(stats.data[beyond]) or 0
    return tonumber(stats.data[n]) - added
  end
end

local function percentiles_us(stats, counts, total, shares)
  local found, seen, at = {}, 0, 1
  for n = tonumber(stats.min), tonumber(stats.max) do
    seen = seen + counts(n)
    while at <= #shares and seen >= shares[at] * total do
      found[at], at = n, at + 1
    end
  end
  return found, seen
end

function done(summary, latency, _)
  local errors = summary.errors
  local duration = summary.duration - threads[1]:get("connect_ms") * 1000
  local timeouts = errors.timeout
  local failed = errors.connect + errors.read + errors.write + timeouts + errors.status
  local stats = ffi.cast("redbatch_stats **", latency)[0]
  local total = summary.requests - timeouts
  if total == 0 then
    print(string.format("redbatch 0 %d %d 0 0 0 0", duration, failed))
    return
  end
  local counts = true_counts(stats, summary, threads[1]:get("connections"))
  local found, seen = percentiles_us(stats, counts, total, { 0.5, 0.95, 0.99 })
  if seen ~= total then
    print(string.format("redbatch-error %d latencies of %d requests: another wrk than this script knows", seen, total))
    return
  end
  local line = "redbatch %d %d %d %d %d %d %d"
  local max = tonumber(stats.max)
  print(string.format(line, summary.requests, duration, failed, found[1], found[2], found[3], max))
  print("redbatch-ticks " .. table.concat(threads[1]:get("ticks"), " "))
end
