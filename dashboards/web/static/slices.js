// The same figures by what requests can be told apart by.

import { ask, link } from "./api.js";
import { count, el, many, quoted, share, stack, table, time } from "./dom.js";
import { basis, legend, nothing } from "./overview.js";

const DIMENSIONS = ["model", "input_tokens", "output_tokens", "cached", "concurrency", "route", "status", "warm", "stream",
  "finish_reason", "error_type"];

// Commas stand between names, and blanks around them are none of theirs: in a tag's name both are escaped.
const tagged = (name) => [`tag:${name.replace(/[%,\s]/g, encodeURIComponent)}`, `tag:${quoted(name)}`];

export async function slices() {
  const by = new URLSearchParams(location.search).get("by") || "input_tokens";
  const summary = await ask("/summary", { by });
  const known = await ask("/facets");
  const tags = [...(known.runs.length ? ["run"] : []), ...Object.keys(known.tags)].filter(Boolean);
  const choices = new Map([...DIMENSIONS.map((name) => [name, name]), ...tags.map(tagged)]), title = choices.get(by) ?? by;
  const pick = el("p", {}, "By ", ...[...choices].flatMap(([d, shown]) => [el("a", {
    href: link({ by: d }), "data-go": true, "data-focus": `by-${d}`, "aria-current": d === by ? "true" : null }, shown), " "]));
  if (!summary.overall.requests) return [pick, ...nothing()];
  const left = summary.groups_left_out;
  return [pick, legend(), table(`Slices by ${title}`, [title, "n", ...(summary.sampled ? ["times of"] : []), "TTFT p50", "TTFT p95", "E2E p50",
    "E2E p95", "errors", "cancelled", "stages' share"], summary.groups.map((group) => row(group, summary.sampled))),
  left ? el("p", { class: "quiet" }, `${many(left, "smaller group")} left out.`) : "", basis(summary)];
}

function row(group, sampled) {
  const m = Object.fromEntries(group.measures.map((x) => [x.name, x]));
  const parts = group.stages.map((s) => ({ stage: s.name, size: s.sum_ns, title: `${s.name}: ${share(s.share)} of E2E` }));
  return [Object.values(group.key).map((value) => (value === null ? "not known" : quoted(value))).join(", "), count(group.requests),
    ...(sampled ? [count(group.read)] : []), time(m.ttft.p50_ns), time(m.ttft.p95_ns), time(m.e2e.p50_ns), time(m.e2e.p95_ns), count(group.errors),
    count(group.cancelled), stack(parts, parts.map((p) => p.title).join(", "))];
}
