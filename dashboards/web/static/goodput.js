// Goodput under limits, and throughput against latency at each concurrency.

import { ask, link } from "./api.js";
import { levels, library } from "./charts.js";
import { count, el, many, rate, share, table, time } from "./dom.js";
import { late, nothing } from "./overview.js";
import { told } from "./why.js";

const LIMITS = { ttft: "1s", tpot: "100ms", e2e: "" };

// The limits in the URL; without any, those above.
export function limits() {
  const here = new URLSearchParams(location.search);
  const given = Object.fromEntries(Object.keys(LIMITS).map((name) => [name, here.get(name) ?? ""]).filter(([, value]) => value));
  return Object.keys(given).length ? given : Object.fromEntries(Object.entries(LIMITS).filter(([, value]) => value));
}

const inWords = (l) => Object.entries(l).map(([name, value]) => `${name.toUpperCase()} ${value}`).join(", ");

// One line for the overview.
export function goodputLine(g, here = false) {
  const f = g.overall;
  return [el("p", { "data-test": "goodput" }, `${rate(f.goodput_per_s)} of ${rate(f.requests_per_s)} requests/s met ${inWords(limits())}: ` +
    `${share(f.good_share)}. ${count(f.missed)} missed a limit, ${count(f.failed)} failed, ${count(f.unknown)} could not be told. `,
  here ? null : el("a", { href: link({ view: "goodput" }), "data-go": true }, "Change the limits"))];
}

export async function goodput() {
  const summary = await ask("/summary");
  if (!summary.overall.requests) return nothing();
  const now = limits();
  const form = el("form", { "aria-label": "Limits", onsubmit: (event) => {
    event.preventDefault();
    history.pushState(null, "", link(Object.fromEntries(new FormData(event.target))));
    dispatchEvent(new PopStateEvent("popstate"));
  } }, ...Object.keys(LIMITS).map((name) => el("label", {}, `${name.toUpperCase()} at most`,
    el("input", { type: "text", name, value: now[name] ?? "", placeholder: "no limit", autocomplete: "off" }))),
  el("button", { type: "submit" }, "Apply"));
  const sections = [
    late(`Goodput: ${inWords(now)}`, ask("/goodput", now), (g) => [...goodputLine(g, true), ...told(g, broken(g.overall), money(g.overall))]),
    late("Throughput against latency", ask("/throughput"), throughput),
  ];
  const parts = [form, ...sections];
  parts.rest = Promise.all([...sections.map((section) => section.done), library().catch(() => null)]);
  return parts;
}

function broken(f) {
  const rows = f.broken.flatMap((b) => Object.entries(b.stages).map(([stage, n]) => [b.limit.toUpperCase(), stage, count(n), share(b.read ? n / b.read : null)]));
  if (!rows.length) return el("p", { class: "quiet" }, "No request that ended well broke a limit.");
  return table("Misses by the stage that broke the limit", ["limit", "stage", "requests", "share of its misses"], rows);
}

function money(f) {
  const c = f.cost, t = f.tasks, price = (value) => (value === null ? "no data" : `${value.toPrecision(4)} ${c.currency}`);
  const rows = [["by tokens", price(c.tokens), price(c.tokens_per_request), price(c.tokens_per_good_request)],
    ["by GPU time", price(c.gpu), price(c.gpu_per_request), price(c.gpu_per_good_request)]];
  const each = !t.correct ? "." : `; ${time(t.time_per_correct_ns)}${t.cost_per_correct === null ? "" : ` and ${price(t.cost_per_correct)}`} for each ` +
    `correct one${t.cost_per_correct === null ? ", whose cost is not known" : ""}.`;
  const tasks = t.tasks ? el("p", {}, `${count(t.correct)} of ${many(t.tasks, "task")} correct${each}`) : el("p", { class: "quiet" }, "No task told its outcome.");
  return el("div", {}, table("Cost", ["reckoned", "all", "a request", "a request that met the limits"], rows), tasks);
}

function throughput(t) {
  const f = t.overall;
  if (!f.levels.length) return told(t, el("p", { class: "quiet" }, "No time with a known concurrency and tokens."));
  const rows = f.levels.map((l) => [l.label + (l.label === f.knee ? " (knee)" : l.thin ? " (thin)" : ""), rate(l.tokens_per_s),
    rate(l.user_tokens_per_s), count(l.requests), time(l.ttft_p50_ns),
    time(l.e2e_p50_ns), time(l.e2e_p95_ns), time(l.seconds * 1e9)]);
  return told(t, levels(f), table("At each concurrency", ["in flight", "tokens/s, all", "tokens/s, one user", "n", "TTFT p50", "E2E p50",
    "E2E p95", "seen for"], rows));
}
