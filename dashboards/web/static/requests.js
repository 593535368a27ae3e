// The request table, and the same as a live tail.

import { ask, chosen, idCut, link, traceLink } from "./api.js";
import { cellOf, count, el, many, table, time, visible, when, word } from "./dom.js";
import { nothing } from "./overview.js";

const SORTS = { start: "start", e2e: "E2E", ttft: "TTFT" };
const TAIL_EVERY_MS = 2000;
const TAIL_ROWS = 200;
const TAIL_BACK_MS = 3600000;

const heads = (of) => ["trace", of("start"), "model", "route", "status", of("ttft"), of("e2e"), "input", "output",
  "cached", "longest stage"];

function cells(r, cut) {
  return [
    traceLink(r.trace_id, cut),
    when(r.start_unix_ns), word(r.model), word(r.route), r.error_type ? `${r.status}: ${r.error_type}` : r.status, time(r.ttft_ns),
    time(r.e2e_ns), count(r.input_tokens), count(r.output_tokens), count(r.cached_tokens),
    r.longest_stage === null ? "no data" : `${r.longest_stage} ${time(r.longest_stage_ns)}`];
}

export async function requests() {
  const here = new URLSearchParams(location.search);
  const sort = here.get("sort") || "start";
  const found = await ask("/requests", { sort, limit: 100 });
  if (!found.total) return nothing();
  const head = (name) => el("a", { href: link({ sort: name }), "data-go": true, "data-focus": `head-${name}` }, SORTS[name]);
  const links = Object.keys(SORTS).map((s) => el("a", { href: link({ sort: s }), "data-go": true, "data-focus": `sort-${s}`,
    "aria-current": s === sort ? "true" : null }, `by ${SORTS[s]}`));
  const cut = idCut(found.requests.map((r) => r.trace_id));
  const whole = table("Requests", heads(head), found.requests.map((r) => cells(r, cut)));
  whole.querySelector(`[data-focus="head-${CSS.escape(sort)}"]`)?.closest("th").setAttribute("aria-sort", "descending");
  return [el("p", {}, `${count(found.requests.length)} of ${many(found.total, "request")}, sorted `, ...links.flatMap((a) => [a, " "])), whole];
}

// Requests that ended are put on top as they come; a row that is there stays, and so does the focus.
// An answer holds the latest rows and the count of all: what came beside its rows is said.
export async function tail() {
  let seen = null, paused = false;
  const told = el("p", { role: "status" }, "Waiting for requests…");
  const whole = table(`Requests as they end, the latest ${TAIL_ROWS}, the last first`, heads((name) => SORTS[name]), []);
  const body = whole.querySelector("tbody");
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: (event) => {
    paused = !paused;
    event.target.setAttribute("aria-pressed", String(paused));
  } }, "Pause");
  const reader = await tailReader();
  const take = async () => {
    const found = await reader.latest(TAIL_ROWS);
    const fresh = found.requests.filter((r) => !seen?.has(r.trace_id + r.span_id));
    const cut = idCut(found.requests.map((r) => r.trace_id));
    for (const one of fresh.toReversed()) body.prepend(el("tr", {}, ...cells(one, cut).map((cell, n) => cellOf(n, cell))));
    while (body.children.length > TAIL_ROWS) body.lastChild.remove();
    const first = seen === null, missed = await reader.missed(found.total, fresh.length);
    seen = new Set(found.requests.map((r) => r.trace_id + r.span_id));
    if (!fresh.length) return;
    const what = first ? `${count(fresh.length)} of ${many(found.total, "request")} of the last hour` : many(fresh.length, "more request");
    told.replaceChildren(`${what}, the latest began ${when(fresh[0].start_unix_ns)}` + (missed
      ? `; ${count(missed)} since this view was opened ${missed === 1 ? "is" : "are"} not shown: more than ${TAIL_ROWS} came at once, or ended before those shown` : ""));
  };
  const again = async () => {
    if (!whole.isConnected) return;
    try {
      if (!paused) await take();
    } catch (problem) { told.replaceChildren(visible(problem.message)); }
    setTimeout(again, TAIL_EVERY_MS);
  };
  await take();
  setTimeout(again, TAIL_EVERY_MS);
  return [el("p", {}, pause), told, whole];
}

// The requests since an hour before now, of the collector's clock: those of a fixed time, so that their
// count tells how many came. It is moved on each hour, or more and more would be counted each time.
async function tailReader() {
  let since = null, from = 0, before = null, put = 0, missed = 0;
  const latest = (limit) => {
    const query = Object.fromEntries([...new Set(chosen().keys())].map((name) => [name, chosen().getAll(name)]));
    return ask("/requests", { ...query, since, sort: "end", limit }, false);
  };
  const move = async () => {
    const now = (await ask("/status", {}, false)).made_at_unix_ns / 1e6;
    since = new Date(now - TAIL_BACK_MS).toISOString();
    from = performance.now();
  };
  await move();
  return { latest, missed: async (total, fresh) => {
    if (before === null) before = total;
    else put += fresh;
    missed = Math.max(0, total - before - put);
    if (performance.now() - from > TAIL_BACK_MS) {
      await move();
      before = (await latest(1)).total - put - missed;
    }
    return missed;
  } };
}
