// What all parts of the console show: numbers, names and tables.
// Names come from workers and clients and are not trusted: they are set as text only, isolated, with control characters
// as escapes.

const MAX_NAME_CHARS = 300;
const MAX_NAMES = 5;
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

export const NONE = "-";
export const MISSING = "unknown: Redis does not answer";

export const byId = (id) => document.getElementById(id);

export const escaped = (text) =>
  text.replace(HIDDEN, (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`);

export function printable(value, max = MAX_NAME_CHARS) {
  const text = String(value);
  return escaped(text.length > max ? `${text.slice(0, max)}…` : text);
}

export const decimals = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const count = (value) => value.toLocaleString("en");
export const rate = (value) => (value ? decimals(value, value < 100 ? 1 : 0) : "0");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function latency(ms) {
  if (ms === null) return NONE;
  return ms < 10 ? `${decimals(ms, 1)} ms` : ms < 1000 ? `${decimals(ms, 0)} ms` : `${decimals(ms / 1000, 1)} s`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

export const age = (ms) => (ms === null ? NONE : ms < 10000 ? `${decimals(ms / 1000, 1)} s` : duration(ms / 1000));
export const name = (text, span = 1) => ({ text, kind: "name", span });
export const head = (text, span = 1) => ({ text, kind: "name", span, scope: span > 1 ? "rowgroup" : "row" });
export const number = (text, span = 1) => ({ text, kind: "number", span });

// Changes only what differs, so that selected text and the place of a screen reader stay.
export function fill(body, rows) {
  rows.forEach((cells, index) => {
    const row = body.rows[index] || body.insertRow();
    cells.forEach((cell, place) => fillCell(row, place, cell));
    while (row.cells.length > cells.length) row.lastElementChild.remove();
  });
  while (body.rows.length > rows.length) body.lastElementChild.remove();
}

export function fillCell(row, place, cell) {
  const tag = cell.scope ? "TH" : "TD";
  let element = row.cells[place];
  if (!element || element.tagName !== tag) {
    const made = document.createElement(tag);
    made.append(document.createElement("bdi"));
    if (element) element.replaceWith(made);
    else row.append(made);
    element = made;
  }
  if (cell.scope) element.scope = cell.scope;
  element.className = cell.kind || "";
  element.rowSpan = cell.span || 1;
  element.colSpan = cell.columns || 1;
  const text = printable(cell.text);
  if (element.firstChild.textContent !== text) element.firstChild.textContent = text;
}

export function message(text, table) {
  const columns = table.parentElement.tHead.rows[0].cells.length;
  return [[{ text, kind: "condition", columns }]];
}

export function namesOf(names) {
  const more = names.length > MAX_NAMES ? ` and ${count(names.length - MAX_NAMES)} more` : "";
  return names.slice(0, MAX_NAMES).map((each) => `\u2068${printable(each)}\u2069`).join(", ") + more;
}
