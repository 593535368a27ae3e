// One request as a waterfall: its spans, clocks and stages, and the lanes of engine and GPU below.

import { ask } from "./api.js";
import { STAGES, count, el, facts, many, quoted, share, stack, svg, table, time, when, word } from "./dom.js";
import { gpuLane, sharers, stepLane } from "./lanes.js";
import { late } from "./overview.js";

export async function trace() {
  const id = new URLSearchParams(location.search).get("id") ?? "";
  if (!id) return [el("p", {}, "No trace is named: take one of the requests.")];
  const path = `/traces/${encodeURIComponent(id)}`;
  const [found, engine] = await Promise.all([ask(path, {}, false), ask(`${path}/engine`, {}, false)]);
  const first = Math.min(0, ...found.spans.map((s) => s.offset_ns));
  const scale = (ns) => ((ns - first) / Math.max(found.duration_ns, 1)) * 1000;
  const way = late("Critical path", ask(`${path}/path`, {}, false), criticalPath);
  const place = el("section", { "aria-live": "polite", "data-test": "span" });
  const parts = [
    el("h2", {}, `Trace ${found.trace_id}`),
    el("p", { class: "quiet" }, `${when(found.start_unix_ns)}, ${time(found.duration_ns)}, ${many(found.spans.length, "span")}` +
      (found.spans_left_out ? `, ${count(found.spans_left_out)} more are not shown` : "") +
      (found.values_cut ? `; ${many(found.values_cut, "value")} cut at 4,096 characters` : "")),
    axis(first, found.duration_ns), clocks(found.requests, scale),
    el("div", { class: "bars", "data-test": "waterfall", role: "group", "aria-label": "Spans, the earliest first" },
      ...found.spans.flatMap((span) => bar(span, scale, (event) => tell(span, place, event.currentTarget)))),
    place,
    ...stepLane(engine, scale), ...sharers(engine), ...gpuLane(engine, scale), way,
    ...found.requests.map(record),
  ];
  parts.rest = way.done;
  return parts;
}

function axis(first, whole) {
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, time(first + part * whole)));
  return el("div", { class: "bars", "aria-hidden": "true" }, el("div", {}, ""), el("div", { class: "axis" }, ...ticks),
    el("div", {}, ""));
}

const CLOCKS = [["first chunk", "first_chunk_ns"], ["first token", "ttft_ns"], ["first answer", "first_answer_ns"]];

function clocks(requests, scale) {
  const rows = requests.flatMap((request) => {
    const known = CLOCKS.filter(([, key]) => request[key] !== null);
    if (!known.length) return [];
    const marks = known.map(([name, key]) => svg("rect", { x: scale(request.offset_ns + request[key]) - 1.5, y: 0, width: 3,
      height: 20, class: `c-${name.replace(" ", "-")}` }));
    const said = known.map(([name, key]) => `${name} at ${time(request[key])}`).join(", ");
    return [el("div", { class: "name" }, "first-token clocks"), track(said, ...marks),
      el("div", { class: "time" }, time(request.ttft_ns)),
      el("div", { class: "said quiet" }, ...known.map(([name, key]) =>
        el("span", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
          svg("rect", { width: 10, height: 10, class: `c-${name.replace(" ", "-")}` })), `${name} ${time(request[key])}`)))];
  });
  return el("div", { class: "bars", "data-test": "clocks" }, ...rows);
}

export function track(label, ...marks) {
  return el("div", { class: "track" }, svg("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
    "aria-label": label }, ...marks));
}

function bar(span, scale, onclick) {
  const x = scale(span.offset_ns), width = Math.max(scale(span.offset_ns + span.duration_ns) - x, 1.5);
  const kind = STAGES.includes(span.stage) ? span.stage : "none";
  const marks = span.events.map((e) => svg("rect", { x: scale(e.offset_ns), y: 0, width: 2, height: 20, class: "mark" }));
  const failed = span.status === "Error" ? "! " : "";
  return [
    el("div", { class: `name depth${Math.min(span.depth, 4)}` },
      el("button", { type: "button", "aria-pressed": "false", title: span.name, onclick }, `${failed}${word(span.name)}`)),
    track(`${word(span.name)}: starts at ${time(span.offset_ns)}, takes ${time(span.duration_ns)}`,
      svg("rect", { x, y: 2, width, height: 16, class: `s-${kind}` }), ...marks),
    el("div", { class: "time" }, time(span.duration_ns)),
  ];
}

function tell(span, place, button) {
  for (const one of document.querySelectorAll("[data-test=waterfall] button")) one.setAttribute("aria-pressed", String(one === button));
  const attributes = Object.entries(span.attributes).sort(([a], [b]) => (a < b ? -1 : 1));
  const rows = [["service", word(span.service)], ["span id", span.span_id], ["starts at", time(span.offset_ns)],
    ["takes", time(span.duration_ns)], ["status", [span.status, span.status_message].filter(Boolean).join(": ")], ...attributes];
  for (const event of span.events) {
    rows.push([`event ${event.name}`, [`at ${time(event.offset_ns)}`,
      ...Object.entries(event.attributes).map((pair) => pair.join(" = "))].join(", ")]);
  }
  place.replaceChildren(el("h3", {}, word(span.name)), facts(rows));
}

function criticalPath(found) {
  const left = found.without_spans ? [el("p", { class: "quiet" }, `The spans of ${many(found.without_spans, "request")} are not stored: ` +
    `what held ${found.without_spans === 1 ? "it" : "them"} is not known.`)] : [];
  if (!found.requests.length && !left.length) return [el("p", { class: "quiet" }, "No request of this trace has a record.")];
  return left.concat(found.requests.map((request) => el("div", {},
    stack(request.segments.map((s) => ({ stage: s.stage, size: s.ns, title: `${s.name}: ${time(s.ns)}` })),
      request.segments.map((s) => `${s.name} ${time(s.ns)}`).join(", ")),
    table(`What held ${request.name}, piece by piece: ${time(request.e2e_ns)}`, ["span", "stage", "from", "holds it for", "share"],
      request.segments.map((s) => [s.name, s.stage, time(s.offset_ns), time(s.ns), share(s.ns / Math.max(request.e2e_ns, 1))])))));
}

function record(request) {
  const ran = request.stages.filter((s) => s.ns > 0 || s.count);
  const rows = ran.map((s) => [s.part_of ? `· ${s.stage} (in ${s.part_of})` : s.stage, time(s.ns), share(s.share), count(s.count)]);
  const parts = ran.filter((s) => !s.part_of).map((s) => ({ stage: s.stage, size: s.ns, title: `${s.stage}: ${time(s.ns)}` }));
  const words = (...given) => given.filter(Boolean).map(quoted).join(", ") || "no data";
  const told = [
    ["model", words(request.model)], ["operation", request.operation || "no model call"], ["route", words(request.route)],
    ["answer", `${request.stream ? "streamed" : "not streamed"}, ${many(request.choices, "choice")}`],
    ["first chunk", time(request.first_chunk_ns)], ["first token (TTFT)", time(request.ttft_ns)],
    ["first answer", time(request.first_answer_ns)], ["TPOT", time(request.tpot_ns)],
    ["longest gap", `${time(request.itl_max_ns)} of ${many(request.itl_n, `${request.itl_kind ?? ""} gap`.trim())}`],
    ["status", words(request.status, request.error_type)], ["finish reason", words(request.finish_reason)],
    ["HTTP status", request.http_status === null ? "no response" : String(request.http_status)],
    ["tokens in / out / cached / reasoning", ["input", "output", "cached", "reasoning"].map((kind) => count(request[`${kind}_tokens`])).join(" / ")],
    ["at arrival", `${count(request.in_flight)} others in the proxy, ${count(request.running)} running, ${count(request.waiting)} waiting`],
    ["preemptions", count(request.preemptions)],
    ["warm", request.warm === null ? "not known" : request.warm ? "yes" : `no: ${request.cold_reason ?? "not said"}`],
    ["times told by", [request.source ?? "not known", ...request.source_detail].join(", ")],
    ["service", words(request.service)], ["service instance", words(request.service_instance)],
    ["cost", request.cost === null ? "no data" : String(Number(request.cost.toPrecision(6)))],
    ...Object.entries(request.tags).map(([name, value]) => [`tag ${quoted(name)}`, quoted(value)]),
    ...request.repairs.map((rule) => ["mended", rule]),
  ];
  return el("section", {}, el("h2", {}, `Stages of ${request.route || request.operation || "the request"}`),
    stack(parts, parts.map((p) => p.title).join(", ")),
    table(`They add up to the end-to-end time of ${time(request.e2e_ns)}`, ["stage", "time", "share", "times"], rows), facts(told));
}
