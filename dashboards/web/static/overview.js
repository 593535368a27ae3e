// Overview and slices: distributions first, each figure with its n.

import { ask, link } from "./api.js";
import { heat, percentiles, traffic } from "./charts.js";
import { STAGES, count, el, share, stack, svg, table, time } from "./dom.js";

function cards(report) {
  const all = report.overall, by = Object.fromEntries(all.measures.map((m) => [m.measure, m]));
  const of = (name, p) => time(by[name]?.[`${p}_ns`] ?? null);
  const facts = [
    ["Requests", count(all.counts.total), `${count(all.counts.error)} error, ${count(all.counts.cancelled)} cancelled`],
    ["TTFT p50 / p95", `${of("ttft", "p50")} / ${of("ttft", "p95")}`, `p99 ${of("ttft", "p99")}, n ${count(by.ttft?.n)}`],
    ["E2E p50 / p95", `${of("e2e", "p50")} / ${of("e2e", "p95")}`, `p99 ${of("e2e", "p99")}, n ${count(by.e2e?.n)}`],
    ["Requests/s", (all.activity.requests_per_s ?? 0).toFixed(2), `peak concurrency ${count(all.activity.peak_concurrency)}`],
    ["Output tokens/s", (all.activity.output_tokens_per_s ?? 0).toFixed(1), `known for ${count(all.activity.output_tokens_known)}`],
    ["Cold / cached", `${count(all.counts.cold)} / ${count(all.counts.cached)}`, `cached not known for ${count(all.counts.cached_unknown)}`],
  ];
  return el("dl", { class: "cards" }, ...facts.map(([name, value, note]) =>
    el("div", { class: "card" }, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)))));
}

function stacks(slice) {
  const rows = [];
  for (const p of ["p50", "p95", "p99"]) {
    const parts = slice.stages.filter((s) => STAGES.includes(s.stage)).map((s) => ({
      stage: s.stage, size: s[`${p}_ns`] ?? 0, title: `${s.stage} ${p}: ${time(s[`${p}_ns`])}`,
    }));
    rows.push(el("div", { class: "name" }, `each stage's ${p}`), stack(parts, parts.map((x) => x.title).join(", ")),
      el("div", { class: "time" }, ""));
  }
  return el("div", {}, legend(), el("div", { class: "bars", "data-test": "stacks" }, ...rows));
}

function legend() {
  return el("ul", { class: "legend", "aria-label": "Colours of the stages" }, ...STAGES.map((stage) => el("li", {},
    svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, class: `s-${stage}` })), stage)));
}

const TITLES = { first_chunk: "First chunk", first_answer: "First answer", itl_chunk: "ITL (chunk gaps)" };

function stageTable(slice) {
  const rows = [...slice.stages, ...slice.measures].map((s) => [
    s.part_of ? `· ${s.stage} (in ${s.part_of})` : s.stage ?? TITLES[s.measure] ?? s.measure.toUpperCase(),
    time(s.p50_ns), time(s.p90_ns), time(s.p95_ns), time(s.p99_ns), time(s.max_ns), count(s.n), count(s.no_data),
    s.share === undefined ? "" : share(s.share)]);
  return table("Percentiles by stage", ["stage", "p50", "p90", "p95", "p99", "max", "n", "no data", "share of E2E"], rows);
}

export async function overview() {
  const [report, e2e] = await Promise.all([ask("/report"), ask("/series")]);
  if (!report.overall.counts.total) return nothing();
  const measure = new URLSearchParams(location.search).get("heat") === "ttft" ? "ttft" : "e2e";
  const cells = measure === "e2e" ? e2e : await ask("/series", { measure });
  return [
    cards(report),
    el("section", {}, el("h2", {}, "What the figures say"), ...report.reading.map((line) => el("p", {}, line)),
      ...lost(report.losses)),
    el("h2", {}, "Where the time goes"), stacks(report.overall), stageTable(report.overall),
    el("h2", {}, "First token over time"), percentiles(e2e, "ttft", "TTFT"),
    el("h2", {}, "Whole request over time"), percentiles(e2e, "e2e", "E2E"),
    el("h2", {}, "Requests over time"), traffic(e2e),
    el("h2", {}, `Heat map of ${measure.toUpperCase()}`),
    el("p", {}, el("a", { href: link({ heat: measure === "e2e" ? "ttft" : null }), "data-go": true },
      `Show ${measure === "e2e" ? "TTFT" : "E2E"} instead`)), heat(cells),
  ];
}

function lost(losses) {
  const spans = losses.spans_in_window;
  const said = spans === null ? "No sender told its losses." : `${count(spans)} spans lost at the senders in this window.`;
  return [el("p", { class: spans ? "bad" : "quiet" }, said)];
}

export function nothing() {
  return [el("p", {}, "No request matches. Widen the window, or drop a filter."),
    el("p", {}, el("a", { href: link({ since: "30d", run: null, model: null, route: null, status: null, tag: null }),
      "data-go": true }, "Show the last 30 days"))];
}

const DIMENSIONS = ["model", "input_tokens", "output_tokens", "cached", "concurrency", "route", "status", "warm", "stream", "source"];

export async function slices() {
  const by = new URLSearchParams(location.search).get("by") ?? "input_tokens";
  const pick = el("p", {}, "By ", ...DIMENSIONS.flatMap((d) => [el("a", {
    href: link({ by: d }), "data-go": true, "aria-current": d === by ? "true" : null }, d), " "]));
  const report = await ask("/report", { by });
  if (!report.overall.counts.total) return [pick, ...nothing()];
  const rows = (report.groups ?? []).map((g) => {
    const m = Object.fromEntries(g.measures.map((x) => [x.measure, x]));
    const parts = g.stages.filter((s) => STAGES.includes(s.stage)).map((s) => ({
      stage: s.stage, size: s.sum_ns, title: `${s.stage}: ${share(s.share)} of E2E` }));
    return [Object.values(g.key).map(String).join(", "), count(g.counts.total), time(m.ttft?.p50_ns), time(m.ttft?.p95_ns),
      time(m.e2e?.p50_ns), time(m.e2e?.p95_ns), count(g.counts.error), stack(parts, parts.map((p) => p.title).join(", "))];
  });
  return [pick, table(`Slices by ${by}`, [by, "n", "TTFT p50", "TTFT p95", "E2E p50", "E2E p95", "errors", "stages' share"], rows)];
}
