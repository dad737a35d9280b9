// The panel of shared GPUs: who holds a slot, and who waits for one. It is hidden while no worker shares a GPU.

import { MISSING, NONE, byId, decimals, fill, head, message, name, number } from "./console_cells.js";
import { poll } from "./console_poll.js";

const POLL_MS = 2000;

const seconds = (value) => (value === null ? NONE : `${decimals(value, 1)} s`);
const who = (row) => [name(row.worker), name(row.queue || NONE), name(row.host || NONE)];

function slotRow(pool, slot) {
  const cells = [head(`${pool.pool} ${slot.slot}`), { text: slot.state, kind: "condition" }];
  if (slot.state === "free") return [...cells, ...Array(3).fill(name(NONE)), ...Array(3).fill(number(NONE))];
  const state = slot.host ? slot.state : "held by a worker without a heartbeat";
  cells[1] = { text: state, kind: slot.host ? "condition good" : "condition warn" };
  return [...cells, ...who(slot), number(seconds(slot.left_s)), number(NONE), number(String(slot.fence))];
}

const waitingRow = (pool, row) => [
  head(`${pool.pool} ${row.slots.join(", ")}`), { text: "waiting", kind: "condition" }, ...who(row),
  number(NONE), number(seconds(row.waits_s)), number(NONE),
];

const poolRows = (pool) => [
  ...pool.slots.map((slot) => slotRow(pool, slot)), ...pool.waiting.map((row) => waitingRow(pool, row)),
];

function show(report) {
  if (!report) {
    fill(byId("leases"), message(MISSING, byId("leases")));
    return;
  }
  const rows = report.problem ? message(report.problem, byId("leases")) : report.pools.flatMap(poolRows);
  byId("leases-section").hidden = !rows.length;
  fill(byId("leases"), rows);
}

poll("/console/leases", POLL_MS, show);
