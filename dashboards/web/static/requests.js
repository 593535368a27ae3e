// The request table and one request as a waterfall.

import { ask, link } from "./api.js";
import { STAGES, count, el, svg, table, time, when } from "./dom.js";
import { nothing } from "./overview.js";

const SORTS = { start: "start", e2e: "E2E", ttft: "TTFT" };

export async function requests() {
  const here = new URLSearchParams(location.search);
  const sort = here.get("sort") ?? "start";
  const found = await ask("/requests", { sort, limit: 100 });
  if (!found.total) return nothing();
  const head = (name) => el("button", { type: "button", "aria-pressed": String(sort === name),
    onclick: () => document.querySelector(`a[data-sort=${name}]`).click() }, SORTS[name]);
  const links = Object.keys(SORTS).map((s) => el("a", { href: link({ sort: s }), "data-go": true, "data-sort": s,
    "aria-current": s === sort ? "true" : null }, `by ${SORTS[s]}`));
  const rows = found.requests.map((r) => [
    el("a", { href: link({ view: "trace", id: r.trace_id }), "data-go": true }, r.trace_id.slice(0, 8)),
    when(r.start_unix_ns), r.model, r.route, r.error_type ? `${r.status}: ${r.error_type}` : r.status, time(r.ttft_ns),
    time(r.e2e_ns), count(r.input_tokens), count(r.output_tokens), count(r.cached_tokens),
    `${r.longest_stage} ${time(r.longest_stage_ns)}`]);
  return [el("p", {}, `${count(found.requests.length)} of ${count(found.total)} requests, sorted `,
    ...links.flatMap((a) => [a, " "])),
  table("Requests", ["trace", head("start"), "model", "route", "status", head("ttft"), head("e2e"), "input", "output", "cached",
    "longest stage"], rows)];
}

export async function trace() {
  const id = new URLSearchParams(location.search).get("id") ?? "";
  const found = await ask(`/traces/${encodeURIComponent(id)}`, {}, false);
  const place = el("section", { "aria-live": "polite" });
  const whole = Math.max(found.duration_ns, 1);
  const rows = found.spans.flatMap((span) => bar(span, whole, () => tell(span, place)));
  return [
    el("h2", {}, `Trace ${found.trace_id}`),
    el("p", { class: "quiet" }, `${when(found.start_unix_ns)}, ${time(found.duration_ns)}, ${count(found.spans.length)} spans` +
      (found.spans_left_out ? `, ${count(found.spans_left_out)} more are not shown` : "")),
    el("div", { class: "bars", "data-test": "waterfall" }, ...rows), place,
    ...found.requests.map(record),
  ];
}

function bar(span, whole, onclick) {
  const x = Math.max(0, (span.offset_ns / whole) * 1000), width = Math.max((span.duration_ns / whole) * 1000, 1.5);
  const kind = STAGES.includes(span.stage) ? span.stage : "none";
  const marks = span.events.map((e) => svg("rect", { x: (e.offset_ns / whole) * 1000, y: 0, width: 2, height: 20, class: "mark" }));
  return [
    el("div", { class: `name depth${Math.min(span.depth, 4)}` }, el("button", { type: "button", onclick }, span.name)),
    el("div", { class: "track" }, svg("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
      "aria-label": `${span.name}: starts at ${time(span.offset_ns)}, takes ${time(span.duration_ns)}` },
    svg("rect", { x, y: 2, width, height: 16, class: `s-${kind}` }), ...marks)),
    el("div", { class: "time" }, time(span.duration_ns)),
  ];
}

function tell(span, place) {
  const facts = Object.entries(span.attributes).sort(([a], [b]) => (a < b ? -1 : 1));
  place.replaceChildren(el("h2", {}, span.name),
    el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
      ...span.events.flatMap((e) => [el("dt", {}, `event ${e.name}`), el("dd", {}, `at ${time(e.offset_ns)}`)])));
}

function record(request) {
  const stages = request.stages.filter((s) => s.ns > 0 || s.count).map((s) => [
    s.part_of ? `· ${s.stage} (in ${s.part_of})` : s.stage, time(s.ns),
    `${((s.ns / Math.max(request.e2e_ns, 1)) * 100).toFixed(1)} %`, count(s.count)]);
  const facts = [["first chunk", time(request.first_chunk_ns)], ["first token (TTFT)", time(request.ttft_ns)],
    ["first answer", time(request.first_answer_ns)], ["TPOT", time(request.tpot_ns)], ["status", request.status],
    ["tokens in / out / cached", `${count(request.input_tokens)} / ${count(request.output_tokens)} / ${count(request.cached_tokens)}`]];
  return el("section", {}, el("h2", {}, `Stages of ${request.route || request.operation || "the request"}`),
    table(`They add up to the end-to-end time of ${time(request.e2e_ns)}`, ["stage", "time", "share", "times"], stages),
    el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}
