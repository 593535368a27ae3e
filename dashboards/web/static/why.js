// Why it is slow: what the slow ones have, the critical path, other requests' prefills, the cache.

import { ask, idCut, link, traceLink } from "./api.js";
import { count, el, later, many, quoted, share, signed, table, time, word } from "./dom.js";
import { late, nothing } from "./overview.js";

// The sentences that the figures give, and below them what they rest on.
export function told(answer, ...parts) {
  return [...answer.reading.map((line) => el("p", {}, line)), ...parts.filter((part) => part !== null),
    later("What this rests on", () => el("ul", {}, ...answer.assumptions.map((line) => el("li", {}, line))))];
}

export async function why() {
  const summary = await ask("/summary");
  if (!summary.overall.requests) return nothing();
  const measure = new URLSearchParams(location.search).get("measure") === "ttft" ? "ttft" : "e2e";
  const sections = [
    late(`What the slow ones have in common, by ${measure.toUpperCase()}`, ask("/attribution", { measure }), (a) => attribution(a, measure)),
    late("Critical path", ask("/path"), path),
    late("Decode lost to other requests' prefills", ask("/interference"), interference),
    late("Prefix cache and preemption", ask("/cache"), cache),
  ];
  sections.rest = Promise.all(sections.map((section) => section.done));
  return sections;
}

function attribution(a, measure) {
  const other = measure === "e2e" ? "ttft" : "e2e";
  const stages = a.stages.map((s) => [s.stage, time(s.middle_ns), time(s.slow_ns), signed(s.difference_ns),
    s.low_ns === null ? "no data" : `${signed(s.low_ns)} … ${signed(s.high_ns)}`, share(s.share)]);
  const slices = a.slices.filter((s) => s.stands_out).map((s) => [s.dimension, s.value === null ? "not known" : quoted(s.value), share(s.middle_share),
    share(s.slow_share), `${share(s.low)} … ${share(s.high)}`, `${count(s.middle)} / ${count(s.slow)}`]);
  return told(a,
    el("p", {}, el("a", { href: link({ measure: other === "e2e" ? null : other }), "data-go": true, "data-focus": "measure" }, `By ${other.toUpperCase()} instead`)),
    el("p", { class: "quiet" }, `${many(a.slow, "slow one")} from ${time(a.slow_from_ns)} on, ${count(a.middle)} in the middle ` +
      `(${time(a.middle_from_ns)} to ${time(a.middle_to_ns)}), of ${count(a.requests)}.`),
    table("Stages of the slow ones and of those in the middle", ["stage", "middle, mean", "slow, mean", "difference", "95 % interval",
      "share of the difference"], stages),
    slices.length ? table("What is more or less frequent among the slow ones", ["dimension", "value", "in the middle", "among the slow",
      "95 % interval of the difference", "n"], slices) : el("p", { class: "quiet" }, "No value of any dimension stands out among the slow ones."));
}

function path(p) {
  const figures = p.overall;
  return told(p, el("p", { class: "quiet" }, `Of ${many(figures.chosen, "request")} ${count(figures.looked_at)} ` +
    `${figures.looked_at === 1 ? "was" : "were"} looked at, and ${count(figures.requests)} of these ${figures.requests === 1 ? "has its" : "have their"} spans; ` +
    `${time(figures.beside_ns)} ran beside the path.`),
  table("Steps on the critical path", ["step", "requests", "runs", "on the path", "beside it", "gone, at most", "share", "p50", "p95"],
    figures.steps.map((s) => [s.name && s.name !== s.stage ? `${s.stage}: ${s.name}` : s.stage, count(s.requests), count(s.runs),
      time(s.on_path_ns), time(s.beside_ns), time(s.if_gone_ns), share(s.share), time(s.p50_ns), time(s.p95_ns)])));
}

function interference(i) {
  const f = i.overall, who = (id) => (id ? traceLink(id, cut) : "not stored");
  const cut = idCut([...f.worst_victims.flatMap((v) => [v, ...v.causes]), ...f.worst_causers].map((one) => one.trace_id).filter(Boolean));
  const known = f.share === null ? "Lost: no data" : `${time(f.lost_ns)} of ${time(f.decode_ns)} of decode (${share(f.share)})`;
  return told(i, el("p", { class: "quiet" }, `${known}, in ${count(i.mixed_steps)} of ${many(i.steps, "step")}` +
    (f.share === null ? "." : `; caused ${time(f.caused_ns)}, of which by nobody known ${time(f.unknown_ns)}.`)),
  ...(f.worst_victims.length ? [table("Requests that lost most", ["trace", "lost", "share of its decode", "steps", "caused most by"], f.worst_victims.map((v) =>
    [who(v.trace_id), time(v.lost_ns), share(v.share), count(v.steps),
      el("span", {}, ...v.causes.slice(0, 3).flatMap((c) => [who(c.trace_id), ` ${time(c.ns)} `]))])),
  table("Requests that caused most", ["trace", "caused", "steps", "requests held up"], f.worst_causers.map((c) =>
    [who(c.trace_id), time(c.caused_ns), count(c.steps), count(c.victims)]))] : []));
}

function cache(c) {
  const f = c.overall, p = f.preempted;
  const known = f.cached_known ? `${count(f.hits)} of ${many(f.cached_known, "request")} hit; ` + (f.hit_share === null
    ? "what share of the input tokens was cached is not known." : `${share(f.hit_share)} of the input tokens were cached.`)
    : "Which requests hit is not known.";
  return told(c, !f.models.length ? null : table("Prefix cache", ["model", "requests that hit", "cached tokens", "prefill saved", "95 % interval"],
    f.models.map((m) => [word(m.model), count(m.hits), count(m.cached_tokens), time(m.saved_ns),
      m.low_ns === null ? "no data" : `${time(m.low_ns)} … ${time(m.high_ns)}`])),
  el("p", {}, known),
  el("p", {}, `Preemption: ${many(p.preemptions, "time")} in ${many(p.requests, "request")}` + (p.requests ? `, ${time(p.off_ns)} off the engine; ` +
    (p.known ? `work done again ${time(p.again_ns)}, at most ${many(p.tokens_again_at_most, "token")} (known of ${count(p.known)})` : "what was done again is not known") : "") + "."));
}
