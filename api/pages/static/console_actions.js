// What an operator does with the dead letters and jobs of one queue. Each action needs an API key of the scope admin.
// Lists are asked for only while they are open. Names and texts are not trusted: see console_cells.js.

import {
  NONE, byId, count, duration, fill, fillCell, head, message, name, namesOf, number, plural, printable,
} from "./console_cells.js";
import { NO_KEY, forgetKey, hasKey, isKey, keepKey, send } from "./console_gateway.js";

const POLL_MS = 2000;
const REQUEUE_MS = 300000; // requeues wait for those before them, 30 s each
const CONFIRM_MS = 6000;
const MAX_TEXTS = 50;
const MAX_TEXT_CHARS = 20000;
const WITHOUT_RESULTS = ["cancelled", "deleted"];
const OPEN = ["queued", "running"];

const view = {
  queues: [],
  queue: "",
  mayAct: false,
  timers: { letters: 0, jobs: 0 },
  asked: { letters: 0, jobs: 0 }, // number of the last question of each list: older answers are dropped
  busy: new Set(), // ids of what is being changed
  armed: "", // the action that a second press confirms
  requeues: Promise.resolve(),
};

const LISTS = {
  letters: {
    panel: "letters-panel", body: "letters", path: "/console/dead", none: "no dead letters", noun: "dead letter",
    cells: (letter) => [
      head(letter.id), number(`${duration(letter.age_s)} ago`), name(letter.lane), number(count(letter.inputs)),
      number(count(letter.attempts)), name(letter.worker), name(letter.error),
    ],
    buttons: (letter) => [
      { label: "Show text", act: () => showText(letter.id) },
      { label: "Requeue", act: () => requeue(letter.id) },
      { label: "Delete", isFinal: true, act: () => purge(letter.id) },
    ],
  },
  jobs: {
    panel: "jobs-panel", body: "job-list", path: "/console/jobs", none: "no jobs", noun: "job",
    cells: (job) => [
      head(job.id), name(job.status), number(`${count(job.done)} of ${count(job.n)}`), number(count(job.failed)),
      number(`${duration(job.age_s)} ago`), name(job.op), name(job.owner || NONE),
    ],
    buttons: (job) => {
      if (OPEN.includes(job.status)) return [{ label: "Cancel", isFinal: true, act: () => cancel(job.id, false) }];
      if (WITHOUT_RESULTS.includes(job.status)) return [];
      return [{ label: "Delete results", isFinal: true, act: () => cancel(job.id, true) }];
    },
  },
};

// The status of actions: a screen reader reads it, so it changes only when there is something new.
function say(text, kind = "") {
  const line = byId("action-status");
  line.className = `note ${kind}`;
  line.hidden = !text;
  if (line.textContent !== text) line.textContent = text;
}

const reason = (answer) =>
  answer.json().then((body) => printable(body.error.message, MAX_TEXT_CHARS), () => printable(answer.statusText));

// Returns the answer to an action, or null after it has said why there is none.
async function act(path, options) {
  try {
    const answer = await send(path, options);
    if (answer.ok) return await answer.json();
    say(`Refused (${answer.status}): ${await reason(answer)}`, "bad");
  } catch {
    say("The gateway did not answer in time: the list shows whether it was done.", "warn");
  }
  return null;
}

// Runs an action on what has this id, whose buttons are disabled until then; then asks for the lists again.
async function change(id, run) {
  view.busy.add(id);
  refresh();
  try {
    await run();
  } finally {
    view.busy.delete(id);
    refresh();
  }
}

const letterPath = (id, rest = "") =>
  `/console/dead/${encodeURIComponent(id)}${rest}?queue=${encodeURIComponent(view.queue)}`;

function requeue(id) {
  const path = letterPath(id, "/requeue");
  view.requeues = view.requeues.then(() => change(id, async () => {
    say(`Requeuing ${namesOf([id])} …`);
    const answer = await act(path, { method: "POST", signal: AbortSignal.timeout(REQUEUE_MS) });
    if (!answer) return;
    if (answer.answered) say(`${namesOf([id])}: answered, so this dead letter is deleted.`, "good");
    else say(`${namesOf([id])} was not answered: ${printable(answer.error)}`, "warn");
  }));
}

const purge = (id) => change(id, async () => {
  if (await act(letterPath(id), { method: "DELETE" })) say(`${namesOf([id])}: deleted.`, "good");
});

const cancel = (id, deletesResults) => change(id, async () => {
  const path = `/console/jobs/${encodeURIComponent(id)}${deletesResults ? "?delete_results=true" : ""}`;
  const answer = await act(path, { method: "DELETE" });
  if (answer) say(printable(answer.outcome), answer.changed ? "good" : "warn");
});

async function showText(id) {
  const letter = await act(letterPath(id));
  if (!letter) return;
  const texts = letter.texts || [];
  const shown = texts.slice(0, MAX_TEXTS).map((each) => {
    const item = document.createElement("li");
    const text = document.createElement("bdi");
    text.textContent = printable(Array.isArray(each) ? `token ids ${each}` : each, MAX_TEXT_CHARS);
    item.append(text);
    return item;
  });
  byId("text-list").replaceChildren(...shown);
  byId("text-title").textContent = `Text of ${namesOf([id])}`;
  byId("text-more").textContent = letter.texts === null ? "It was not kept: it was too long, or is unreadable."
    : texts.length > MAX_TEXTS ? `${count(texts.length - MAX_TEXTS)} more: redbatch dead show --show-text` : "";
  byId("text-panel").hidden = false;
  byId("text-title").focus();
}

function hideText() {
  byId("text-panel").hidden = true;
  byId("text-list").replaceChildren();
}

// A final action needs a second press within CONFIRM_MS.
function press(item, list, button) {
  const key = `${button.label} ${item.id}`;
  if (button.isFinal && view.armed !== key) {
    view.armed = key;
    say(`Press again to confirm: ${button.label.toLowerCase()}, ${namesOf([item.id])}.`, "warn");
    setTimeout(() => {
      if (view.armed === key) disarm();
    }, CONFIRM_MS);
  } else {
    view.armed = "";
    button.act();
  }
  showButtons(list);
}

function disarm() {
  view.armed = "";
  say("");
  Object.values(LISTS).forEach(showButtons);
}

// Rows stay with what they show, so that no button changes its meaning under a finger.
function showRows(list, items, none = list.none) {
  const body = byId(list.body);
  if (!items.length) {
    if (list.rows && list.rows.size) body.replaceChildren();
    list.rows = new Map();
    fill(body, message(none, body));
    return;
  }
  const before = list.rows || new Map();
  list.rows = new Map();
  if (!before.size) body.replaceChildren();
  items.forEach((item, index) => {
    const row = before.get(item.id)?.row || document.createElement("tr");
    list.rows.set(item.id, { row, item });
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] || null);
    list.cells(item).forEach((cell, place) => fillCell(row, place, cell));
  });
  for (const row of [...body.rows].slice(items.length)) row.remove();
  showButtons(list);
}

function showButtons(list) {
  for (const { row, item } of (list.rows || new Map()).values()) {
    const buttons = view.mayAct ? list.buttons(item) : [];
    const place = list.cells(item).length;
    const cell = row.cells[place] || row.insertCell();
    while (cell.children.length > buttons.length) cell.lastElementChild.remove();
    buttons.forEach((button, index) => {
      const element = cell.children[index] || cell.appendChild(document.createElement("button"));
      const isArmed = view.armed === `${button.label} ${item.id}`;
      const label = isArmed ? `Confirm: ${button.label.toLowerCase()}` : button.label;
      element.type = "button";
      element.onclick = () => press(item, list, button);
      element.disabled = view.busy.has(item.id);
      element.className = isArmed ? "bad" : "";
      if (element.textContent !== label) element.textContent = label;
      element.setAttribute("aria-label", `${label}: ${list.noun} ${printable(item.id)}`);
    });
  }
}

const isShown = (list) => byId(list.panel).open && !byId("panels").hidden && !document.hidden && view.queue;

async function ask(kind) {
  const list = LISTS[kind];
  clearTimeout(view.timers[kind]);
  if (!isShown(list)) return;
  const question = ++view.asked[kind];
  const problem = await update(kind, list, question);
  if (question !== view.asked[kind]) return;
  byId(`${kind}-problem`).textContent = problem;
  view.timers[kind] = setTimeout(() => ask(kind), POLL_MS);
}

// Returns what is wrong with a list; "" if nothing is.
async function update(kind, list, question) {
  let listed;
  try {
    const answer = await send(`${list.path}?queue=${encodeURIComponent(view.queue)}`);
    if (question !== view.asked[kind]) return "";
    if (!answer.ok) return await refuse(answer);
    listed = await answer.json();
  } catch {
    return "The gateway does not answer: this list is old.";
  }
  view.mayAct = listed.may_act;
  byId("read-only").hidden = view.mayAct;
  showRows(list, listed[kind]);
  const older = (listed.total || 0) - listed[kind].length;
  const away = listed.problems.map((each) => each.redis);
  const left = away.length ? `Redis does not answer at ${namesOf(away)}: what is there is left out. ` : "";
  return left + (older > 0 ? `${plural(older, `older ${list.noun}`)} not shown.` : "");
}

async function refuse(answer) {
  const words = `Refused (${answer.status}): ${await reason(answer)}`;
  if ((answer.status === 401 || answer.status === 403) && hasKey()) {
    forgetKey();
    say(words, "bad");
    refresh();
  }
  return words;
}

function refresh() {
  Object.values(LISTS).forEach(showButtons);
  ask("letters");
  ask("jobs");
}

// Shows the queues to choose from; the choice stays while its queue is there.
export function showQueues(names) {
  byId("action-section").hidden = !names.length;
  if (JSON.stringify(names) === JSON.stringify(view.queues)) return;
  view.queues = names;
  const options = names.map((each) => {
    const option = document.createElement("option");
    option.value = each;
    option.textContent = printable(each);
    option.selected = each === view.queue;
    return option;
  });
  byId("action-queue").replaceChildren(...options);
  choose();
}

function choose() {
  const queue = byId("action-queue").value;
  if (queue === view.queue) return;
  view.queue = queue;
  view.armed = "";
  hideText();
  say("");
  Object.values(LISTS).forEach((list) => showRows(list, [], "Asking the gateway …"));
  refresh();
}

byId("action-queue").addEventListener("change", choose);
byId("letters-panel").addEventListener("toggle", () => ask("letters"));
byId("jobs-panel").addEventListener("toggle", () => ask("jobs"));
byId("text-close").addEventListener("click", hideText);
byId("action-key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("action-key").value.trim();
  byId("action-key").value = "";
  if (!isKey(key)) {
    say(NO_KEY, "warn");
    return;
  }
  keepKey(key);
  say("");
  refresh();
});
document.addEventListener("visibilitychange", refresh);
