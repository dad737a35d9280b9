// The panel of the last minutes: charts of each queue and of errors by code, and tables with the same numbers.

import { NONE, byId, count, decimals, fill, head, latency, message, number, plural, rate } from "./console_cells.js";
import { Chart, MAX_LINES, fillLegend } from "./console_charts.js";
import { poll } from "./console_poll.js";

const POLL_MS = 2000; // the gateway takes a sample as often
const WINDOW_S = 30; // of the numbers of workers: errors are summed over the same time

const shortNumber = (value) => (value >= 1000 ? `${decimals(value / 1000, value % 1000 ? 1 : 0)} k` : rateOrCount(value));
const rateOrCount = (value) => (Number.isInteger(value) ? count(value) : decimals(value, 1));
const shortTime = (ms) => (ms < 1000 ? `${rateOrCount(ms)} ms` : `${decimals(ms / 1000, 1)} s`);

const PANELS = [
  ["requests-chart", "requests_per_s", rate, shortNumber, 1],
  ["p50-chart", "p50_ms", latency, shortTime, 10],
  ["p99-chart", "p99_ms", latency, shortTime, 10],
  ["failed-chart", "failed", count, shortNumber, 4],
];
const charts = PANELS.map(([id, column, ...form]) => ({ column, chart: new Chart(byId(id), ...form) }));
const errorChart = new Chart(byId("errors-chart"), count, shortNumber, 4);

const last = (values) => (values.length ? values[values.length - 1] : null);
const highest = (values) => values.reduce((most, each) => (each === null || each < most ? most : each), null);
const sum = (values) => values.reduce((total, each) => total + each, 0);

// The lines of all charts are those of the same queues: the busiest ones, in the order of their names.
function busiest(rows, weight) {
  const order = [...rows].sort((one, other) => weight(other) - weight(one));
  const chosen = new Set(order.slice(0, MAX_LINES));
  return rows.filter((each) => chosen.has(each));
}

function notShown(rows, noun) {
  const rest = rows.length - MAX_LINES;
  return rest > 0 ? ` The charts show ${MAX_LINES}; ${plural(rest, noun)} more in the table.` : "";
}

// Returns for each time how many errors there were in WINDOW_S before it.
function windowSums(times, counts) {
  let [start, total] = [0, 0];
  return times.map((time, index) => {
    total += counts[index];
    for (; times[start] <= time - WINDOW_S; start += 1) total -= counts[start];
    return total;
  });
}

const cell = (value, unit) => number(value === null ? NONE : unit(value));
const pair = (values, unit) => [cell(last(values), unit), cell(highest(values), unit)];

function queueRow(queue) {
  return [
    head(queue.queue), ...pair(queue.requests_per_s, rate), ...pair(queue.p50_ms, latency),
    ...pair(queue.p99_ms, latency), ...pair(queue.failed, count),
  ];
}

const errorRow = (error) => [head(error.code), number(count(error.last_minute)), number(count(sum(error.counts)))];

function show(history) {
  if (!history) return;
  const { queues, errors, kept_s } = history;
  const times = history.times_s.map((each) => each - history.age_s);
  const drawn = busiest(queues, (queue) => sum(queue.requests_per_s));
  byId("history-section").hidden = false;
  for (const { column, chart } of charts) {
    chart.show(times, drawn.map((queue) => ({ name: queue.queue, values: queue[column] })), kept_s);
  }
  fillLegend(byId("history-legend"), drawn.map((queue) => queue.queue));
  byId("history-note").textContent = notShown(queues, "queue");
  fill(byId("history"), queues.length ? queues.map(queueRow) : message("no queue", byId("history")));
  const codes = busiest(errors, (error) => sum(error.counts));
  const sums = codes.map((error) => ({ name: error.code, values: windowSums(times, error.counts) }));
  errorChart.show(times, sums, kept_s);
  fillLegend(byId("errors-legend"), codes.map((error) => error.code));
  byId("errors-note").textContent = notShown(errors, "code");
  fill(byId("errors"), errors.length ? errors.map(errorRow) : message("none in the last five minutes", byId("errors")));
}

poll("/console/history", POLL_MS, show);
