// Below a trace: what the engine computed step by step, who shared its batches, what the GPU did.

import { idCut, traceLink } from "./api.js";
import { count, el, facts, later, many, share, svg, table, time } from "./dom.js";

const mid = (one) => one.offset_ns + one.duration_ns / 2;
const holds = (span, at) => span.offset_ns <= at && at < span.offset_ns + span.duration_ns;

function words(step) {
  return `${many(step.prefill_tokens, "prefill token")} of ${many(step.prefill_requests, "request")}, ` +
    `${many(step.decode_tokens, "decode token")} of ${count(step.decode_requests)}`;
}

export function stepLane(engine, scale) {
  const steps = engine.steps;
  const title = el("h2", {}, "Engine steps");
  if (!steps.length) {
    return [title, el("p", { class: "quiet" }, engine.phases.length
      ? "No engine step is stored for this time: it was another server's engine, or its steps were lost."
      : "No span of this trace was in an engine that tells its steps.")];
  }
  const left = engine.steps_left_out ? `, ${count(engine.steps_left_out)} later ones are not shown` : "";
  const mark = svg("rect", { y: 0, width: 3, height: 60, class: "mark" });
  const place = el("div", { "data-test": "step" });
  const pick = el("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": "Engine step",
    oninput: () => choose(Number(pick.value)) });
  const choose = (n) => {
    const step = steps[n];
    pick.value = n;
    pick.setAttribute("aria-valuetext", `step ${n + 1} of ${steps.length}, at ${time(step.offset_ns)}, takes ${time(step.duration_ns)}: ${words(step)}`);
    mark.setAttribute("x", scale(mid(step)) - 1.5);
    place.replaceChildren(...tellStep(step, n, engine));
  };
  const lane = svg("svg", { viewBox: "0 0 1000 60", preserveAspectRatio: "none", role: "img", class: "lane",
    "aria-label": `${many(steps.length, "engine step")}; the table below says the same` }, ...bars(steps, scale), mark);
  lane.addEventListener("click", (event) => {
    const at = ((event.clientX - lane.getBoundingClientRect().left) / lane.getBoundingClientRect().width) * 1000;
    const far = (step) => Math.abs(scale(mid(step)) - at);
    choose(steps.reduce((best, step, n) => (far(step) < far(steps[best]) ? n : best), 0));
    pick.focus();
  });
  const first = steps.findIndex((s) => s.stages.includes("prefill"));
  choose(Math.max(first, 0));
  return [title,
    el("p", { class: "quiet" }, `${many(steps.length, "step")} of the engine while this trace was in it${left}. Height: tokens ` +
      "computed, as their square root; all requests of the batch together."),
    el("div", { class: "bars", "data-test": "steps" },
      el("div", { class: "name" }, legend()), el("div", { class: "track high" }, lane), el("div", { class: "time" }, ""),
      el("div", { class: "name" }, "choose a step"), pick, el("div", { class: "time" }, "")),
    place, later("All steps as a table", () => stepTable(steps))];
}

function legend() {
  return el("span", {}, ...["prefill", "decode"].flatMap((stage) => [svg("svg", { viewBox: "0 0 10 10", class: "key", "aria-hidden": "true" },
    svg("rect", { width: 10, height: 10, class: `s-${stage}` })), `${stage} tokens `]));
}

function bars(steps, scale) {
  const most = Math.sqrt(Math.max(1, ...steps.map((s) => s.prefill_tokens + s.decode_tokens)));
  return steps.flatMap((step) => {
    const x = scale(step.offset_ns), width = Math.max(scale(step.offset_ns + step.duration_ns) - x, 0.6);
    const all = step.prefill_tokens + step.decode_tokens;
    const height = (Math.sqrt(all) / most) * 58, prefill = all ? (height * step.prefill_tokens) / all : 0;
    const mine = step.stages.length ? "" : " other";
    return [svg("rect", { x, width, y: 60 - height, height: height - prefill, class: `s-decode${mine}` }),
      svg("rect", { x, width, y: 60 - prefill, height: prefill, class: `s-prefill${mine}` })];
  });
}

function tellStep(step, n, engine) {
  const inside = engine.sharers.filter((s) => holds(s, mid(step)));
  const who = (stage) => inside.filter((s) => s.stage === stage).map((s) => s.trace_id);
  const cut = idCut(engine.sharers.map((s) => s.trace_id));
  const links = (ids) => (ids.length ? el("span", {}, ...ids.slice(0, 20).flatMap((id) => [traceLink(id, cut), " "]),
    ids.length > 20 ? `and ${ids.length - 20} more` : "") : "none");
  return [el("h3", {}, `Step ${n + 1}`), facts([
    ["at", `${time(step.offset_ns)}, takes ${time(step.duration_ns)}, engine ${step.engine}`],
    ["this trace was in", step.stages.join(", ") || "no stage of the engine"],
    ["prefill", `${many(step.prefill_tokens, "token")} of ${many(step.prefill_requests, "request")}`],
    ["decode", `${many(step.decode_tokens, "token")} of ${many(step.decode_requests, "request")}`],
    ["running / waiting", `${count(step.running)} / ${count(step.waiting)}`],
    ["KV cache used", share(step.kv_cache_usage)],
    ["others in prefill", links(who("prefill"))], ["others in decode", links(who("decode"))],
  ])];
}

function stepTable(steps) {
  return table("Engine steps", ["step", "at", "takes", "prefill tokens", "of requests", "decode tokens", "of requests", "running",
    "waiting", "KV cache", "this trace in"], steps.map((s, n) => [String(n + 1), time(s.offset_ns), time(s.duration_ns),
    count(s.prefill_tokens), count(s.prefill_requests), count(s.decode_tokens), count(s.decode_requests), count(s.running),
    count(s.waiting), share(s.kv_cache_usage), s.stages.join(", ")]));
}

export function sharers(engine) {
  const title = el("h2", {}, "Who shared its batches");
  const by = new Map();
  for (const one of engine.sharers.filter((s) => s.steps)) {
    const known = by.get(one.trace_id) ?? { prefill: 0, decode: 0 };
    known[one.stage] += one.steps;
    by.set(one.trace_id, known);
  }
  if (!by.size) {
    return engine.steps.length ? [title, el("p", { class: "quiet" }, "No other request was computed in the same steps.")] : [];
  }
  const cut = idCut([...by.keys()]);
  const rows = [...by].sort(([, a], [, b]) => b.prefill - a.prefill || b.decode - a.decode)
    .map(([id, n]) => [traceLink(id, cut), count(n.prefill), count(n.decode)]);
  const left = engine.sharers_left_out ? el("p", { class: "quiet" }, `${count(engine.sharers_left_out)} more are not shown.`) : "";
  return [title, table("Other requests in the steps of this one", ["trace", "steps in its prefill", "steps in its decode"], rows), left];
}

// Bytes in GiB; nothing that a reader would have to count the zeros of.
function between(low, high, unit) {
  const text = (value) => (Math.abs(value) >= 1000 ? count(Math.round(value)) : value.toPrecision(3));
  if (unit === "By") return `${text(low / 2 ** 30)} to ${text(high / 2 ** 30)} GiB`;
  return `${text(low)} to ${text(high)}${unit && unit !== "1" ? ` ${unit}` : ""}`;
}

export function gpuLane(engine, scale) {
  const title = el("h2", {}, "GPU");
  if (!engine.gauges.length) {
    return [title, el("p", { class: "quiet" }, "No GPU gauge is stored for this time. Send gauges whose names hold gpu or dcgm over OTLP to see them here.")];
  }
  return [title, el("div", { class: "bars", "data-test": "gpu" }, ...engine.gauges.flatMap((gauge) => {
    const values = gauge.points.map((p) => p.value);
    const most = Math.max(...values.map(Math.abs)) || 1, parts = values.map((value) => value / most);  // a difference of two may be infinite
    const low = Math.min(0, ...parts), span = Math.max(...parts) - low || 1;
    const line = gauge.points.map((p, n) => `${scale(p.offset_ns).toFixed(1)},${(19 - ((parts[n] - low) / span) * 18).toFixed(1)}`).join(" ");
    const told = between(Math.min(...values), Math.max(...values), gauge.unit);
    const pairs = Object.entries(gauge.attributes);
    const all = pairs.map((pair) => pair.join("=")).join(", ");
    const where = pairs.filter(([name]) => !name.startsWith("hw.")).map((pair) => pair.join("=")).join(", ");
    return [el("div", { class: "name", title: `${gauge.service} ${all}` }, `${gauge.name} ${where}`),
      el("div", { class: "track" }, svg("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
        "aria-label": `${gauge.name} ${where}: ${many(values.length, "point")}, ${told}` },
      svg("polyline", { points: line, class: "curve" }))), el("div", { class: "time" }, told)];
  }))];
}
