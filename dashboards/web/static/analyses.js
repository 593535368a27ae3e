// What a change would bring, and two sets of requests side by side.

import { ask, link } from "./api.js";
import { STAGES, change, count, el, many, signed, table, time, zone } from "./dom.js";
import { late, nothing } from "./overview.js";
import { each, shownZone, taken, withZone } from "./times.js";

const PERCENT = /^[+-]\d+(\.\d+)?%$/;

export async function whatif() {
  const here = new URLSearchParams(location.search);
  const given = new Map((here.get("change") ?? "decode=-20%").split(" ").filter(Boolean).map((c) => {
    const at = c.indexOf("=");
    return at < 0 ? [c, null] : [c.slice(0, at), c.slice(at + 1)];
  }));
  const rows = STAGES.filter((s) => s !== "unattributed").flatMap((stage) => {
    const text = given.get(stage) ?? "0%", at = PERCENT.test(text) ? Number.parseFloat(text) : 0;
    const told = el("output", {}, text.replace("%", " %"));  // a slider has per cent alone, a link may have more
    const slider = el("input", { type: "range", min: -100, max: 100, step: 5, value: at, name: stage, "aria-label": `${stage}, per cent`,
      oninput: (e) => { told.textContent = `${e.target.value > 0 ? "+" : ""}${e.target.value} %`; },
      onchange: (e) => {
        given.set(stage, `${e.target.value > 0 ? "+" : ""}${e.target.value}%`);
        if (e.target.value === "0") given.delete(stage);
        history.replaceState(null, "", link({ change: asked(given).join(" ") || " " }));
        dispatchEvent(new Event("stagelens:again"));
      } });
    return [el("span", {}, stage), slider, told];
  });
  const changes = asked(given);
  const sliders = el("div", { class: "sliders" }, ...rows);
  if (!changes.length) return [sliders, el("p", {}, "Move a slider: the recorded requests are told again with that stage changed.")];
  const then = late("What it would bring", ask("/whatif", { change: changes }), effects);
  const parts = [sliders, then];
  parts.rest = then.done;
  return parts;
}

const asked = (given) => [...given].map(([stage, text]) => (text === null ? stage : `${stage}=${text}`));

function effects(answer) {
  if (!answer.requests) return nothing();
  const lines = answer.effects.map((e) => [`${e.measure.toUpperCase()} ${e.percentile}`, time(e.before_ns), time(e.after_ns),
    e.before_ns ? change((e.after_ns - e.before_ns) / e.before_ns) : "no data", count(e.n)]);
  const left = answer.ttft_left_out ? [el("p", { class: "quiet" }, `${many(answer.ttft_left_out, "request")} left out of TTFT.`)] : [];
  return [table(`What ${answer.changes.join(", ")} would bring`, ["percentile", "recorded", "then", "change", "n"], lines), ...left,
    ...answer.assumptions.map((line) => el("p", { class: "quiet" }, line))];
}

const UNMATCHED = ["", "false", "0", "no", "off", "n", "f"];  // as the API reads them; what it cannot read it says

export async function compare() {
  const here = new URLSearchParams(location.search);
  const a = here.get("a") ?? "", b = here.get("b") ?? "", match = here.get("match") ?? "";
  const form = el("form", { "aria-label": "What to compare", onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    history.pushState(null, "", link({ a: each(given.a, withZone), b: each(given.b, withZone), match: given.match ?? null }));
    dispatchEvent(new PopStateEvent("popstate"));
  } }, ...[["a", a], ["b", b]].map(([name, value]) => el("label", {}, `${name.toUpperCase()}: a run, or FROM..TO`,
    el("input", { type: "text", name, value: each(value, shownZone), required: true, title: `A run, or FROM..TO, each of them ${taken()}` }))),
  el("label", {}, "Match lengths", el("input", { type: "checkbox", name: "match", value: "true", checked: !UNMATCHED.includes(match.toLowerCase()),
    title: "Cut both sides to one mix of input and output lengths" })),
  el("button", { type: "submit" }, "Compare"));
  if (!a || !b) return [form, el("p", {}, `Give two runs, or two windows such as 2h..1h and 1h..now. Times without a zone are read in ${zone()}.`)];
  const found = late(`${a} against ${b}`, ask("/compare", { a, b, ...(match ? { match } : {}) }), differences);
  const parts = [form, found];
  parts.rest = found.done;
  return parts;
}

function differences(answer) {
  const rows = answer.differences.map((d) => [`${d.quantity} ${d.percentile}`, time(d.a_ns), time(d.b_ns), signed(d.difference_ns),
    `${signed(d.low_ns)} … ${signed(d.high_ns)}`, `${count(d.n_a)} / ${count(d.n_b)}`]);
  const cut = `Lengths matched: ${count(answer.left_out_a)} of A and ${count(answer.left_out_b)} of B left out.`;
  return [...answer.reading.map((line) => el("p", {}, line)), answer.matched ? el("p", { class: "quiet" }, cut) : "",
    ...answer.warnings.map((line) => el("p", { class: "bad" }, line)),
    table(`${answer.a} against ${answer.b}`, ["quantity", "A", "B", "B − A", "95 % interval", "n A / B"], rows),
    ...answer.assumptions.map((line) => el("p", { class: "quiet" }, line))];
}
