// A form that sends one request to a queue, as any client does, and shows the answer and the same request for curl.

import { byId, latency, printable } from "./console_cells.js";
import { hasKey, send, urlOf } from "./console_gateway.js";
import { parse, shorten } from "./console_shorten.js";

const MAX_WAIT_MS = 30000; // longer than the deadline that the gateway gives a request by default
const SENTENCE = "Hello, world";

const ofText = (text) => JSON.stringify({ inputs: text });
const byWeight = (answer) => answer.map((tokens) => tokens.sort((one, other) => other.value - one.value));

// By operation: one of `ops` of a worker offers it; `body` returns JSON.
const OPERATIONS = {
  embed: { title: "Embed", ops: ["embed"], path: "/embed", body: (text) => JSON.stringify({ text }) },
  rerank: {
    title: "Rerank", ops: ["score", "embed"], path: "/rerank", label: "Query", example: "a pet", hasDocuments: true,
    body: (query, texts) => JSON.stringify({ query, texts, return_text: true }),
  },
  classify: { title: "Classify", ops: ["classify"], path: "/predict", body: ofText },
  embed_sparse: { title: "Embed: sparse", ops: ["embed_sparse"], path: "/embed_sparse", body: ofText, sort: byWeight },
  embed_all: { title: "Embed: each token", ops: ["embed_all"], path: "/embed_all", body: ofText },
  tokenize: { title: "Tokenize", ops: ["tokenize"], path: "/tokenize", body: ofText },
  predict: {
    title: "Predict", ops: ["predict"], path: "/predict", label: "Input, as JSON", example: "7",
    body: (text) => `{"input": ${asWritten(text)}}`,
  },
};

const offered = new Map(); // names of operations, by queue; what was offered once stays, while somebody fills the form
const chosen = { queue: "", operation: "", example: SENTENCE };
let isSending = false;

// JSON.parse would change integers beyond 2^53.
function asWritten(json) {
  JSON.parse(json);
  return json;
}

// Offers what workers of the queues serve.
export function offerQueues(queues) {
  for (const { queue, workers } of queues) {
    const ops = new Set(workers.flatMap((each) => each.ops));
    const names = Object.keys(OPERATIONS).filter((each) => OPERATIONS[each].ops.some((op) => ops.has(op)));
    if (names.length) offered.set(queue, names);
  }
  byId("try").hidden = !offered.size;
  if (!offered.size) return;
  setOptions(byId("try-queue"), [...offered.keys()].map((each) => [each, each]));
  choose();
}

function setOptions(select, options) {
  const isSame = options.length === select.options.length
    && options.every(([value], index) => select.options[index].value === value);
  if (isSame) return;
  const before = select.value;
  select.replaceChildren(...options.map(([value, title]) => new Option(printable(title), value)));
  if (options.some(([value]) => value === before)) select.value = before;
}

// Fits the form to the queue and the operation.
function choose() {
  const queue = byId("try-queue").value;
  setOptions(byId("try-operation"), offered.get(queue).map((each) => [each, OPERATIONS[each].title]));
  const operation = byId("try-operation").value;
  if (queue === chosen.queue && operation === chosen.operation) return;
  const { label = "Text", example = SENTENCE, hasDocuments = false } = OPERATIONS[operation];
  byId("try-label").textContent = label;
  byId("try-documents-field").hidden = !hasDocuments;
  if (byId("try-text").value === chosen.example) byId("try-text").value = example;
  Object.assign(chosen, { queue, operation, example });
  showCurl();
}

// Returns the request of the form. Raises SyntaxError: its input is not JSON.
function readRequest() {
  const { path, body } = OPERATIONS[chosen.operation];
  const documents = byId("try-documents").value.split("\n").filter((each) => each.trim());
  const headers = { "Content-Type": "application/json", "X-Model": chosen.queue };
  return { path, headers, body: body(byId("try-text").value, documents) };
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function showCurl() {
  const curl = byId("try-curl");
  try {
    const { path, headers, body } = readRequest();
    const options = Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`);
    if (hasKey()) options.push('-H "Authorization: Bearer $REDBATCH_API_KEY"');
    curl.textContent = [`curl -s ${quote(urlOf(path))}`, ...options, `-d ${quote(body)}`].join(" \\\n  ");
  } catch {
    curl.textContent = "The input is not JSON.";
  }
}

function say(kind, text) {
  byId("try-status").className = `note ${kind}`;
  byId("try-status").textContent = text;
}

// The routes have three forms of errors: Redbatch's, OpenAI's and TEI's.
function errorOf(text) {
  try {
    const { error } = JSON.parse(text);
    return typeof error === "string" ? error : error.message;
  } catch {
    return text;
  }
}

async function ask({ path, headers, body }, sort) {
  const started = performance.now();
  const answer = await send(path, { method: "POST", headers, body, signal: AbortSignal.timeout(MAX_WAIT_MS) });
  const text = await answer.text();
  const took = latency(performance.now() - started);
  if (!answer.ok) return say("bad", `${answer.status} after ${took}: ${printable(errorOf(text))}`);
  const value = parse(text);
  byId("try-answer").textContent = shorten(sort ? sort(value) : value);
  byId("try-answer").hidden = false;
  return say("", `${answer.status} in ${took}`);
}

async function submit(event) {
  event.preventDefault();
  if (isSending) return;
  isSending = true;
  byId("try-answer").hidden = true;
  say("", "Waiting for the answer …");
  try {
    await ask(readRequest(), OPERATIONS[chosen.operation].sort);
  } catch (error) {
    const late = `No answer within ${MAX_WAIT_MS / 1000} s.`;
    const reasons = { SyntaxError: "The input is not JSON: write a text in double quotes.", TimeoutError: late };
    say("bad", reasons[error.name] || "The gateway does not answer.");
  }
  isSending = false;
}

// Without TLS, a browser offers pages of other machines no clipboard.
async function copy() {
  const copied = navigator.clipboard ? navigator.clipboard.writeText(byId("try-curl").textContent) : Promise.reject();
  await copied.then(
    () => say("", "Copied."),
    () => {
      getSelection().selectAllChildren(byId("try-curl"));
      say("", "The command is selected: copy it with Ctrl-C.");
    },
  );
}

byId("try-form").addEventListener("submit", submit);
byId("try-form").addEventListener("change", choose);
byId("try-form").addEventListener("input", showCurl);
byId("try-copy").addEventListener("click", copy);
