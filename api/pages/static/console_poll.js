// Asks the gateway again and again for what a panel shows, while the page and its panels can be seen.

import { byId } from "./console_cells.js";
import { send } from "./console_gateway.js";

const HIDDEN_MS = 250; // until the panels are looked at again: they are hidden without a key

// Returns null if the gateway refuses, as while Redis is away; undefined if the gateway does not answer: then the numbers
// stay, and the line of status says that they are old.
async function read(path) {
  try {
    const answer = await send(path);
    return answer.ok ? await answer.json() : null;
  } catch {
    return undefined;
  }
}

// Calls `show` with each report, and with null where there is none.
export function poll(path, intervalMs, show) {
  const ask = async () => {
    if (byId("panels").hidden || document.hidden) return HIDDEN_MS;
    const report = await read(path);
    if (report !== undefined) show(report);
    return intervalMs;
  };
  const repeat = async () => setTimeout(repeat, await ask());
  repeat();
}
