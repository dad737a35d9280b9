// The JSON of an answer as text for people: of long lists the first elements, of long texts the first characters.

import { count, escaped } from "./console_cells.js";

const MAX_NUMBERS = 8;
const MAX_ELEMENTS = 20;
const MAX_CHARS = 300;
const MAX_LINES = 200;
const MAX_FIELDS_IN_LINE = 6;

const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
const isScalar = (value) => value === null || typeof value !== "object";

// Keeps all digits of large integers, where the browser tells them.
export const parse = (json) => JSON.parse(json, (_key, value, context) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source || "")
    ? BigInt(context.source) : value);

export function shorten(value) {
  const lines = [];
  write(value, "", "", lines);
  return (lines.length > MAX_LINES ? [...lines.slice(0, MAX_LINES), "…"] : lines).join("\n");
}

function write(value, indent, before, lines) {
  if (lines.length > MAX_LINES) return;
  const line = asLine(value);
  if (line !== null) {
    lines.push(`${indent}${before}${line}`);
    return;
  }
  const isList = Array.isArray(value);
  const keys = Object.keys(value);
  lines.push(`${indent}${before}${isList ? "[" : "{"}`);
  for (const key of keys.slice(0, MAX_ELEMENTS)) {
    write(value[key], `${indent}  `, isList ? "" : `${scalar(key)}: `, lines);
  }
  if (keys.length > MAX_ELEMENTS) lines.push(`${indent}  … and ${count(keys.length - MAX_ELEMENTS)} more`);
  lines.push(`${indent}${isList ? "]" : "}"}`);
}

// Returns null for what takes several lines.
function asLine(value) {
  if (isScalar(value)) return scalar(value);
  if (Array.isArray(value)) return value.every(isNumber) ? numbers(value) : null;
  const fields = Object.entries(value);
  if (fields.length > MAX_FIELDS_IN_LINE || !fields.every(([, each]) => isScalar(each))) return null;
  return `{${fields.map(([key, each]) => `${scalar(key)}: ${scalar(each)}`).join(", ")}}`;
}

function numbers(values) {
  const shown = values.slice(0, MAX_NUMBERS).join(", ");
  return values.length > MAX_NUMBERS ? `[${shown}, …] (${count(values.length)} numbers)` : `[${shown}]`;
}

function scalar(value) {
  if (typeof value !== "string") return String(value);
  const text = value.length > MAX_CHARS ? `${value.slice(0, MAX_CHARS)}…` : value;
  return escaped(JSON.stringify(text));
}
