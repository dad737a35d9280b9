// Asks the gateway again and again for what a panel shows, while the page and its panels can be seen.

import { byId } from "./console_cells.js";
import { send } from "./console_gateway.js";

const HIDDEN_MS = 250; // until the panels are looked at again: they are hidden without a key

// Calls `show` with each answer. Errors are shown by the line of status, which asks more often.
export function poll(path, intervalMs, show) {
  const ask = async () => {
    if (byId("panels").hidden || document.hidden) return HIDDEN_MS;
    try {
      const answer = await send(path);
      show(answer.ok ? await answer.json() : null, answer.status);
    } catch {
      // The gateway does not answer: the numbers stay, and the line of status says that they are old.
    }
    return intervalMs;
  };
  const repeat = async () => setTimeout(repeat, await ask());
  repeat();
}
