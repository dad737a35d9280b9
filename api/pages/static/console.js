// The console: asks the gateway for the state of its queues each second, and shows it in tables.

import {
  MISSING, NONE, age, byId, count, decimals, duration, fill, head, latency, message, name, namesOf, number, plural,
  printable, rate,
} from "./console_cells.js";
import { showQueues } from "./console_actions.js";
import { NO_KEY, forgetKey, hasKey, isKey, keepKey, send } from "./console_gateway.js";
import { offerQueues } from "./console_try.js";

const POLL_MS = 1000;
const RETRY_MS = 500;
const SPREAD_MS = 500; // viewers would ask all at once, when the gateway reads Redis again
const OLD_MS = 3000;
const TICK_MS = 250; // a worker is lost this much before its silence is too long, as the next look is that much later
const MAX_SINCE_READ_S = 1.75; // that is added to the silence of workers: if answers are slower, it is not known
const LOST_SHOWN_MS = 60000; // of a lost worker that Redis has forgotten

const view = {
  state: null, // the last one
  answeredAt: performance.now(), // when it came, on the clock of this page
  answeredTime: "", // the same for people
  refusal: "", // why the last answer had no state
  isStopped: false, // until there is another key
  lost: new Map(), // workers that were lost, by queue and name
  timer: 0,
  isWaiting: false,
  isDue: false, // once more, as soon as the answer is there
};

function queueRows(queue) {
  const lanes = Object.keys(queue.entries_by_lane);
  const away = (queue.shards || []).filter((each) => each.error).length;
  const title = away ? `${queue.queue} (${queue.shards.length - away} of ${queue.shards.length} shards)` : queue.queue;
  return lanes.map((lane, index) => {
    const entries = queue.entries_by_lane[lane];
    const own = [name(lane), number(count(entries)), number(age(queue.oldest_age_ms_by_lane[lane]))];
    if (index) return own;
    const numbers = [
      count(queue.waiting_entries), count(queue.in_flight_entries), rate(queue.requests_per_s),
      queue.batch_size === null ? NONE : decimals(queue.batch_size, 1),
      latency(queue.p50_ms), latency(queue.p99_ms), count(queue.errors),
    ];
    return [head(title, lanes.length), ...own, ...numbers.map((each) => number(each, lanes.length))];
  });
}

// The state was read some time ago: the time since then counts too.
function sinceRead() {
  return Math.min(view.state.age_s + (performance.now() - view.answeredAt) / 1000, MAX_SINCE_READ_S);
}

function withSilence(worker, queue) {
  const silent_s = worker.silent_s + sinceRead();
  const isLost = silent_s >= view.state.silent_after_s - TICK_MS / 1000;
  return { ...worker, queue, id: JSON.stringify([queue, worker.worker]), silent_s, isLost };
}

// Returns the workers, and those that were lost before Redis forgot them.
function listWorkers() {
  const now = performance.now();
  const listed = view.state.queues.flatMap((queue) => queue.workers.map((worker) => withSilence(worker, queue.queue)));
  for (const each of listed) {
    if (each.isLost) view.lost.set(each.id, { ...each, beatAt: now - 1000 * each.silent_s, seenAt: now });
    else view.lost.delete(each.id);
  }
  const ids = new Set(listed.map((each) => each.id));
  for (const [id, each] of view.lost) {
    if (now - each.seenAt > LOST_SHOWN_MS) view.lost.delete(id);
    else if (!ids.has(id)) listed.push({ ...each, silent_s: (now - each.beatAt) / 1000 });
  }
  return listed.sort((one, other) => (one.id < other.id ? -1 : 1));
}

function workerState(worker) {
  if (worker.isLost) {
    const before = worker.failing ? `; it failed before: ${worker.failing}` : `; it was ${worker.state}`;
    return { text: `lost: no heartbeat for ${duration(Math.round(worker.silent_s))}${before}`, kind: "condition bad" };
  }
  if (worker.failing) return { text: `${worker.state}: ${worker.failing}`, kind: "condition warn" };
  return { text: worker.state, kind: `condition ${worker.state === "ready" ? "good" : ""}` };
}

const GIB = 2 ** 30;
const size = (bytes) => (bytes < GIB ? `${decimals(bytes / 2 ** 20, 0)} MiB` : `${decimals(bytes / GIB, 1)} GiB`);

function memoryOf(worker) {
  const used = worker.gpu_used_bytes ? `${size(worker.gpu_used_bytes)} of ` : "";
  const ofGpu = worker.gpu_memory_bytes ? [`GPU ${used}${size(worker.gpu_memory_bytes)}`] : [];
  return [...ofGpu, ...(worker.memory_bytes ? [size(worker.memory_bytes)] : [])].join("; ") || NONE;
}

function workerRow(worker) {
  const unit = worker.ops.includes("predict") ? "inputs/s" : "tokens/s";
  return [
    head(worker.worker), workerState(worker), number(`${Math.round(worker.silent_s)} s ago`), name(worker.queue),
    name(worker.model), name(worker.revision || NONE),
    name(worker.gpu ? `${worker.device} (${worker.gpu})` : worker.device), number(memoryOf(worker)),
    number(worker.tokens_per_s ? `${rate(worker.tokens_per_s)} ${unit}` : NONE),
    number(worker.batch_size === null ? NONE : `${decimals(worker.batch_size, 1)} of ${count(worker.max_batch_size)}`),
    number(count(worker.holds_entries)), number(duration(worker.up_s)),
  ];
}

const jobRow = (queue) => [
  head(queue.queue), number(count(queue.open_jobs)),
  { text: count(queue.dead_letters), kind: queue.dead_letters ? "number warn" : "number" },
];

function shardRows(state) {
  const shards = (state.queues[0] && state.queues[0].shards) || state.problems;
  return shards.map((each) => [
    head(each.shard), name(each.redis),
    each.error
      ? { text: `does not answer: ${each.error}`, kind: "condition bad" }
      : { text: "answers", kind: "condition good" },
  ]);
}

function show() {
  const state = view.state;
  const workers = state ? listWorkers() : [];
  byId("panels").hidden = !state;
  if (state) {
    const isKnown = state.queues.length > 0;
    fill(byId("queues"), isKnown ? state.queues.flatMap(queueRows) : message(MISSING, byId("queues")));
    showQueues(state.queues.map((each) => each.queue));
    fill(byId("jobs"), isKnown ? state.queues.map(jobRow) : message(MISSING, byId("jobs")));
    const none = isKnown ? "no worker is alive: start one with `redbatch worker`" : MISSING;
    fill(byId("workers"), workers.length ? workers.map(workerRow) : message(none, byId("workers")));
    const shards = shardRows(state);
    byId("shard-section").hidden = !shards.length;
    fill(byId("shards"), shards);
    offerQueues(state.queues);
  }
  showStatus(workers);
}

// The status line changes with the state, not with each number: a screen reader reads each change.
function showStatus(workers) {
  const [kind, text] = describe(workers);
  const line = byId("status");
  line.className = `note ${kind}`;
  byId("console").classList.toggle("old", kind === "warn" && view.state !== null && isOld());
  if (line.textContent !== text) line.textContent = text;
}

const isOld = () => performance.now() - view.answeredAt > OLD_MS;

function describe(workers) {
  if (view.refusal) return ["warn", printable(view.refusal)];
  if (isOld()) {
    const since = `No answer from the gateway since ${view.answeredTime}: these numbers are old.`;
    return ["warn", view.answeredTime ? since : "The gateway does not answer."];
  }
  if (!view.state) return ["", "Asking the gateway …"];
  const { problems, queues } = view.state;
  if (problems.length) {
    const left = queues.length ? "The numbers are those of the other shards." : "There are no numbers without it.";
    return ["bad", `Redis does not answer at ${namesOf(problems.map((each) => each.redis))}. ${left}`];
  }
  const lost = workers.filter((each) => each.isLost).map((each) => each.worker);
  if (lost.length) return ["bad", `${plural(lost.length, "worker")} lost: ${namesOf(lost)}`];
  const ready = workers.filter((each) => each.state === "ready").length;
  if (!ready) return ["warn", "Live: no worker is ready"];
  return ["", `Live: ${plural(queues.length, "queue")}, ${plural(ready, "worker")} ready`];
}

async function refuse(answer) {
  const error = await answer.json().then((body) => body.error.message, () => answer.statusText);
  const unknown = `This API key is not accepted (401): ${error}`;
  view.refusal = {
    401: hasKey() ? unknown : "This gateway needs an API key with the scope admin (401).",
    403: hasKey() ? `This API key may not see the console (403): ${error}` : error,
    429: `Too many requests with wrong keys (429): ${error}`,
  }[answer.status] || `The gateway answers ${answer.status}: ${error}`;
  if (answer.status === 401 || (answer.status === 403 && hasKey())) {
    forget();
    return 0; // until there is another key
  }
  return Math.max(POLL_MS, 1000 * (Number(answer.headers.get("retry-after")) || 0));
}

function forget() {
  forgetKey();
  Object.assign(view, { state: null, isStopped: true });
  view.lost.clear();
  byId("key-form").hidden = false;
  byId("key").focus();
}

// Returns when to ask again, ms; 0: not until something happens.
async function ask() {
  try {
    const answer = await send("/console/state");
    if (!answer.ok) return await refuse(answer);
    const state = await answer.json();
    const answeredTime = new Date().toLocaleTimeString();
    Object.assign(view, { state, refusal: "", answeredAt: performance.now(), answeredTime });
    byId("key-form").hidden = true;
    return Math.max(RETRY_MS, POLL_MS - 1000 * state.age_s) + SPREAD_MS * Math.random(); // when the gateway reads Redis again
  } catch {
    view.refusal = ""; // the status says after OLD_MS that there is no answer
    return POLL_MS;
  }
}

async function poll() {
  clearTimeout(view.timer);
  view.isDue = view.isWaiting;
  if (view.isWaiting || view.isStopped || document.hidden) return;
  view.isWaiting = true;
  const wait = await ask();
  view.isWaiting = false;
  if (view.isDue || wait) view.timer = setTimeout(poll, view.isDue ? 0 : wait);
  show();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  byId("key").value = "";
  if (!isKey(key)) {
    view.refusal = NO_KEY;
    return;
  }
  keepKey(key);
  Object.assign(view, { refusal: "", isStopped: false });
  poll();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) view.answeredAt = performance.now(); // nothing was asked meanwhile
  poll();
});
setInterval(show, TICK_MS);
poll();
