// Overview: distributions first, each figure with its n. The figures of the roll-ups come first,
// those of the requests themselves after them where the requests are not too many.

import { FILTERS, ask, link } from "./api.js";
import { heat, library, percentiles, rates, throughput, traffic } from "./charts.js";
import { goodputLine, limits } from "./goodput.js";
import { STAGES, bounds, count, el, many, rate, share, stack, svg, table, time, when } from "./dom.js";

// One of the report's and the summary's figures by its name.
const named = (figures) => Object.fromEntries(figures.map((f) => [f.name ?? f.stage ?? f.measure, f]));

function cards(summary, report) {
  const all = summary.overall, by = named(all.measures);
  const of = (name, p) => time(by[name]?.[`${p}_ns`] ?? null);
  const seconds = summary.from_unix_ns === null ? null : (summary.to_unix_ns - summary.from_unix_ns) / 1e9;
  const activity = report?.overall.activity;
  const perS = (exact, n) => exact ?? (seconds ? n / seconds : null);
  const part = (n) => share(all.requests ? n / all.requests : null);
  const facts = [
    ["Requests", count(all.requests), `${count(all.errors)} error, ${count(all.cancelled)} cancelled`],
    ["TTFT p50 / p95", `${of("ttft", "p50")} / ${of("ttft", "p95")}`, `p99 ${of("ttft", "p99")}, n ${count(by.ttft.n)}`],
    ["E2E p50 / p95", `${of("e2e", "p50")} / ${of("e2e", "p95")}`, `p99 ${of("e2e", "p99")}, n ${count(by.e2e.n)}`],
    ["TPOT p50 / p95", `${of("tpot", "p50")} / ${of("tpot", "p95")}`, `p99 ${of("tpot", "p99")}, n ${count(by.tpot.n)}`],
    ["Errors / cancelled", `${part(all.errors)} / ${part(all.cancelled)}`, `of ${many(all.requests, "request")}`],
    ["Requests/s", rate(perS(activity?.requests_per_s, all.requests)),
      activity ? `peak concurrency ${count(activity.peak_concurrency)}` : "over the whole window"],
    ["Output tokens/s", rate(all.output_tokens === null ? null : perS(activity?.output_tokens_per_s, all.output_tokens)),
      activity ? `known for ${count(activity.output_tokens_known)}` : "over the whole window"],
    ["Cold / cached", `${count(all.cold)} / ${count(all.cached)}`,
      `cached not known for ${count(all.requests - all.cached - all.not_cached)}`],
  ];
  const whole = (value) => value.split(" / ").flatMap((part, n) => [n ? " / " : "", el("span", { class: "whole" }, part)]);
  return el("dl", { class: "cards" }, ...facts.map(([name, value, note]) =>
    el("div", { class: "card" }, el("dt", {}, name), el("dd", {}, ...whole(value), el("small", {}, note)))));
}

const LEAST_SHARE = 0.1;

// A stage's percentiles are of the requests that ran it: of a stage of few requests they would stand in the bar
// like those that all ran. Stages that fewer than a tenth ran are named below the bars instead, as in the HTML report.
function stacks(stages) {
  const whole = stages.filter((s) => STAGES.includes(s.name ?? s.stage)), named = (s) => s.name ?? s.stage;
  const all = whole[0].n + whole[0].no_data, often = whole.filter((s) => s.n && s.n >= LEAST_SHARE * all), rare = whole.filter((s) => s.n && !often.includes(s));
  const rows = ["p50", "p95", "p99"].flatMap((p) => {
    const parts = often.map((s) => ({ stage: named(s), size: s[`${p}_ns`] ?? 0, title: `${named(s)} ${p}: ${time(s[`${p}_ns`])}, n ${count(s.n)}` }));
    return [el("div", { class: "name" }, `${p} of each stage`), stack(parts, parts.map((x) => x.title).join(", ")),
      el("div", { class: "time" }, "")];
  });
  const left = rare.map((s) => `${named(s)} (n ${count(s.n)})`).join(", ");
  return el("div", {}, legend(Object.fromEntries(often.map((s) => [named(s), s.n]))), el("div", { class: "bars", "data-test": "stacks" }, ...rows),
    el("p", { class: "quiet", "data-test": "rare" }, `n: of ${many(all, "request")}, those that ran the stage.` +
      (left ? ` Not in the bars, since fewer than one in ten ran them: ${left}.` : "")));
}

// With the n of stages, of these alone.
export function legend(n = null) {
  return el("ul", { class: "legend", "aria-label": "Colours of the stages" }, ...STAGES.filter((stage) => !n || stage in n).map((stage) => el("li", {},
    svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, class: `s-${stage}` })),
    stage, n ? el("span", { class: "quiet" }, ` n ${count(n[stage])}`) : "")));
}

const TITLES = { first_chunk: "First chunk", first_answer: "First answer", itl_chunk: "ITL (chunk gaps)" };

const LEVELS = ["p50", "p90", "p95", "p99"];

// A percentile, and below it where the true one lies at 95 %, which the report alone works out.
function level(figures, p) {
  const found = figures.intervals?.find((one) => one.percentile === p);
  return found ? el("span", {}, time(figures[`${p}_ns`]), el("small", {}, bounds(found.low_ns, found.high_ns))) : time(figures[`${p}_ns`]);
}

function stageTable(figures) {
  const rows = figures.map((s) => {
    const name = s.name ?? s.stage ?? s.measure, stage = STAGES.includes(name) || s.part_of;
    return [s.part_of ? `· ${name} (in ${s.part_of})` : stage ? name : TITLES[name] ?? name.toUpperCase(),
      ...LEVELS.map((p) => level(s, p)), time(s.max_ns), count(s.n), count(s.no_data), stage ? share(s.share) : ""];
  });
  return el("div", {}, table("Percentiles by stage", ["stage", ...LEVELS, "max", "n", "no data", "share of E2E"], rows),
    el("p", { class: "quiet", "data-test": "intervals" }, figures.some((s) => s.intervals?.length)
      ? "Below each percentile: its 95 % interval; “?” is a bound that so few values do not have. None for ITL and for more than 100,000 values."
      : "95 % intervals stand below the percentiles where all requests are read."));
}

export function basis(summary) {
  if (summary.exact) return "";
  const span = summary.from_unix_ns === null ? "" : `, from ${when(summary.from_unix_ns)} to ${when(summary.to_unix_ns)}`;
  const part = summary.sampled, all = count(summary.overall.requests);
  const whole = summary.overall.read === summary.overall.requests ? " of single slices" : "";
  return el("p", { class: "quiet", "data-test": "basis" }, part
    ? `Times${whole} are those of ${count(part.read)} of ${all} requests: all of ${many(part.slices, "slice")} of time, one in ` +
      `${count(part.one_in)}. Requests, errors and cancelled are counted over all${span}. `
    : `Percentiles are those of t-digests over all ${all} requests (${summary.read_from})${span}. `,
  el("a", { href: link({ exact: "true" }), "data-go": true }, "Read all of them instead"), ", which may take long.");
}

function lost(losses) {
  const spans = losses.spans_in_window;
  const said = spans === null ? "No sender told its losses." : `${many(spans, "span")} lost at the senders in this window.`;
  return el("p", { class: spans ? "bad" : "quiet" }, said);
}

// A section that is there at once and filled when its answer comes; an error is said in its place.
export function late(title, promise, draw) {
  const head = el("h2", {}, title);
  const place = el("section", { "aria-busy": "true" }, head, el("p", { class: "quiet" }, "Loading…"));
  place.done = promise.then(draw).catch((problem) => [el("p", { class: "bad", role: "alert" }, problem.message)])
    .then((parts) => { place.replaceChildren(head, ...parts); place.removeAttribute("aria-busy"); });
  return place;
}

export async function overview() {
  const summary = await ask("/summary");
  if (!summary.overall.requests) return nothing();
  const head = el("div", {}, cards(summary, null)), figures = el("div", {}, stacks(summary.overall.stages),
    stageTable([...summary.overall.stages, ...summary.overall.measures]));
  const measure = new URLSearchParams(location.search).get("heat") === "ttft" ? "ttft" : "e2e";
  const series = ask("/series", { measure });
  const exact = series.then(() => (summary.exact ? ask("/report") : null));
  const reading = late("What the figures say", exact, (report) => {
    if (!report) return [basis(summary), lost(summary.losses)];
    head.replaceChildren(cards(summary, report));
    figures.replaceChildren(stacks(report.overall.stages), stageTable([...report.overall.stages, ...report.overall.measures]));
    return [...report.reading.map((line) => el("p", {}, line)), lost(report.losses)];
  });
  const ahead = (s) => (s.later ? [el("p", { class: "bad" }, `${many(s.later, "request")} began later than now, by a clock that is ahead: in no step.`)] : []);
  const drawn = (draw) => (s) => [...ahead(s), s.steps.length ? draw(s) : el("p", { class: "quiet" }, "No request began in this window.")];
  const sections = [
    late("First token over time", series, drawn((s) => percentiles(s, "ttft", "TTFT"))),
    late("Whole request over time", series, drawn((s) => percentiles(s, "e2e", "E2E"))),
    late("Requests over time", series, drawn(traffic)),
    late("Errors and cancelled over time", series, drawn(rates)),
    late("Throughput against latency", series, drawn(throughput)),
    late(`Heat map of ${measure.toUpperCase()}`, series, (s) => [
      el("p", {}, el("a", { href: link({ heat: measure === "e2e" ? "ttft" : null }), "data-go": true, "data-focus": "heat" },
        `Show ${measure === "e2e" ? "TTFT" : "E2E"} instead`)),
      s.cells.length ? heat(s) : el("p", { class: "quiet" }, `No request has a ${measure.toUpperCase()}.`)]),
  ];
  const good = late("Goodput", series.catch(() => null).then(() => ask("/goodput", limits())), goodputLine);
  const parts = [head, reading, good, el("h2", {}, "Where the time goes"), figures, ...sections];
  parts.rest = Promise.all([...[reading, good, ...sections].map((section) => section.done), library().catch(() => null)]);
  return parts;
}

export function nothing() {
  return [el("p", {}, "No request matches. Widen the window, or drop a filter."),
    el("p", {}, el("a", { href: link({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), since: "30d" }),
      "data-go": true }, "Show the last 30 days"))];
}
