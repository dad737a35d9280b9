// Requests of the console to the gateway that serves it, with the API key that a person has entered.

const TIMEOUT_MS = 10000;
const ROOT = document.getElementById("console").dataset.root;
const KEY_ITEM = `redbatch-api-key ${ROOT}`; // the key is not for other gateways behind the same proxy

let key = sessionStorage.getItem(KEY_ITEM) || "";

export const urlOf = (path) => location.origin + ROOT + path;
export const NO_KEY = "This is no API key: keys have letters, digits and punctuation only.";
export const isKey = (text) => /^[!-~]+$/.test(text);
export const hasKey = () => key !== "";

export function keepKey(entered) {
  key = entered;
  sessionStorage.setItem(KEY_ITEM, key);
}

export function forgetKey() {
  key = "";
  sessionStorage.removeItem(KEY_ITEM);
}

// Sends a request; `options` are those of fetch, and `path` begins at the gateway's root.
export function send(path, options = {}) {
  const authorization = key ? { authorization: `Bearer ${key}` } : {};
  return fetch(ROOT + path, {
    cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(TIMEOUT_MS), ...options,
    headers: { ...options.headers, ...authorization },
  });
}
