// The panel of tenants: what they have used lately, and their limits.

import { MISSING, NONE, byId, count, decimals, fill, head, message, name, number, plural } from "./console_cells.js";
import { poll } from "./console_poll.js";

const POLL_MS = 5000; // the gateway reads Redis as often

function quotaText(quota) {
  const burst = quota.burst_tokens ? ` (${count(quota.burst_tokens)} at once)` : "";
  const parts = [
    quota.tokens_per_s ? `${count(quota.tokens_per_s)} tokens/s${burst}` : "",
    quota.daily_tokens ? `${count(quota.daily_tokens)} tokens a day` : "",
  ];
  return parts.filter(Boolean).join(", ") || "none";
}

const distinct = (texts) => [...new Set(texts)].join("; or ");
const weightText = (quota) => decimals(quota.weight, Number.isInteger(quota.weight) ? 0 : 2);

function limitsText(tenant) {
  if (tenant.keys === 0) return "no valid key";
  return distinct(tenant.quotas.map(quotaText)) || NONE;
}

const tenantRow = (tenant) => [
  head(tenant.tenant),
  ...[tenant.requests, tenant.refusals, tenant.failures, tenant.inputs, tenant.tokens, tenant.cached_tokens]
    .map((each) => number(count(each))),
  number(tenant.token_share === null ? NONE : `${decimals(100 * tenant.token_share, 1)} %`),
  number(tenant.keys === null ? NONE : count(tenant.keys)),
  name(limitsText(tenant)),
  number(distinct(tenant.quotas.map(weightText)) || NONE),
];

function show(report) {
  if (!report) {
    fill(byId("tenants"), message(MISSING, byId("tenants")));
    return;
  }
  const since = new Date(report.from).toLocaleTimeString([], { timeStyle: "short" });
  const rest = report.left_out ? ` ${plural(report.left_out, "tenant")} with fewer tokens left out.` : "";
  byId("tenants-note").textContent = `Since ${since}, in all gateways, by tokens.${rest}`;
  const rows = report.tenants.length ? report.tenants.map(tenantRow) : message("none yet", byId("tenants"));
  fill(byId("tenants"), rows);
  byId("tenants-section").hidden = false;
}

poll("/console/tenants", POLL_MS, show);
