// The request table, and the same as a live tail.

import { ask, chosen, link } from "./api.js";
import { cellOf, count, el, table, time, when } from "./dom.js";
import { nothing } from "./overview.js";

const SORTS = { start: "start", e2e: "E2E", ttft: "TTFT" };
const TAIL_EVERY_MS = 2000;
const TAIL_ROWS = 200;

const heads = (of) => ["trace", of("start"), "model", "route", "status", of("ttft"), of("e2e"), "input", "output",
  "cached", "longest stage"];

function cells(r) {
  return [
    el("a", { href: link({ view: "trace", id: r.trace_id }), "data-go": true }, r.trace_id.slice(0, 8)),
    when(r.start_unix_ns), r.model, r.route, r.error_type ? `${r.status}: ${r.error_type}` : r.status, time(r.ttft_ns),
    time(r.e2e_ns), count(r.input_tokens), count(r.output_tokens), count(r.cached_tokens),
    `${r.longest_stage} ${time(r.longest_stage_ns)}`];
}

export async function requests() {
  const here = new URLSearchParams(location.search);
  const sort = here.get("sort") ?? "start";
  const found = await ask("/requests", { sort, limit: 100 });
  if (!found.total) return nothing();
  const head = (name) => el("button", { type: "button", "aria-pressed": String(sort === name), "data-focus": `sort-${name}`,
    onclick: () => document.querySelector(`a[data-sort=${name}]`).click() }, SORTS[name]);
  const links = Object.keys(SORTS).map((s) => el("a", { href: link({ sort: s }), "data-go": true, "data-sort": s,
    "aria-current": s === sort ? "true" : null }, `by ${SORTS[s]}`));
  return [el("p", {}, `${count(found.requests.length)} of ${count(found.total)} requests, sorted `,
    ...links.flatMap((a) => [a, " "])), table("Requests", heads(head), found.requests.map(cells))];
}

// Requests that ended are put on top as they come; a row that is there stays, and so does the focus.
export async function tail() {
  const seen = new Set();
  let paused = false;
  const told = el("p", { role: "status" }, "Waiting for requests…");
  const whole = table("Requests as they end, the latest first", heads((name) => SORTS[name]), []);
  const body = whole.querySelector("tbody");
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: (event) => {
    paused = !paused;
    event.target.setAttribute("aria-pressed", String(paused));
  } }, "Pause");
  const take = async () => {
    const query = Object.fromEntries([...new Set(chosen().keys())].map((name) => [name, chosen().getAll(name)]));
    const found = await ask("/requests", { ...query, since: "1h", sort: "end", limit: 100 }, false);
    const fresh = found.requests.filter((r) => !seen.has(r.trace_id + r.span_id));
    for (const one of fresh.reverse()) {
      seen.add(one.trace_id + one.span_id);
      body.prepend(el("tr", {}, ...cells(one).map((cell, n) => cellOf(n, cell))));
    }
    while (body.children.length > TAIL_ROWS) body.lastChild.remove();
    if (fresh.length) told.textContent = `${count(fresh.length)} more requests, the latest began ${when(fresh.at(-1).start_unix_ns)}`;
  };
  const again = async () => {
    if (!whole.isConnected) return;
    try {
      if (!paused) await take();
    } catch (problem) { told.textContent = problem.message; }
    setTimeout(again, TAIL_EVERY_MS);
  };
  await take();
  setTimeout(again, TAIL_EVERY_MS);
  return [el("p", {}, pause), told, whole];
}
