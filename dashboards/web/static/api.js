// The API under /api/v1, asked with the filters that stand in the page's own URL.

import { cut, el } from "./dom.js";

export const FILTERS = ["since", "until", "model", "route", "status", "run", "tag", "warm", "cached", "operation", "exact"];
const MANY = ["model", "route", "status", "tag"];
const KEPT = "stagelens.token";

// A token in the URL's fragment, which no browser sends to a server, is taken out of it at once.
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
}

export function keepToken(token) { sessionStorage.setItem(KEPT, token); }

export class TokenNeeded extends Error {}

export function chosen() {
  const here = new URLSearchParams(location.search);
  const picked = new URLSearchParams();
  for (const name of FILTERS) for (const value of here.getAll(name)) if (value) picked.append(name, value);
  const everywhere = picked.has("run") || here.get("view") === "compare";  // a run is looked for at all times
  if (!picked.has("since") && !everywhere) picked.set("since", "1h");
  return picked;
}

// What is the page's own beside the filters: what a view shows, and the words that can stand for it where these are few.
const OWN = { view: null, id: null, sort: null, by: null, heat: ["e2e", "ttft"], measure: ["e2e", "ttft"], live: ["1"], ttft: null, tpot: null,
  e2e: null, change: null, a: null, b: null, match: null };

// What nobody reads would be passed over, and a filter with a slip in its name would filter nothing: it is said instead.
export function checkKnown() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (!FILTERS.includes(name) && !Object.hasOwn(OWN, name)) {
      throw new Error(`${cut(name) || "a parameter without a name"} is not known in the address: take it out; known are ` +
        `${[...FILTERS, ...Object.keys(OWN)].join(", ")}`);
    }
    if (value && OWN[name] && !OWN[name].includes(value)) {
      throw new Error(`${name} '${cut(value)}' is not known: it is ${OWN[name].join(" or ")}`);
    }
  }
}

// Of what stands in the URL twice the page would take one and pass over the other: it is said instead.
export function checkOnce() {
  const names = [...new URLSearchParams(location.search).keys()];
  const name = names.find((one, n) => names.indexOf(one) !== n && !MANY.includes(one));
  if (name === undefined) return;
  throw new Error(`${name} stands more than once in the address and can stand there once: keep one of them (only ${MANY.join(", ")} may be repeated)`);
}

export async function ask(path, more = {}, filtered = true) {
  const query = filtered ? chosen() : new URLSearchParams();
  for (const [name, values] of Object.entries(more)) {
    for (const value of Array.isArray(values) ? values : [values]) query.append(name, value);
  }
  const text = query.toString(), token = sessionStorage.getItem(KEPT);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let answer;
  try {
    answer = await fetch(`/api/v1${path}${text ? `?${text}` : ""}`, { headers });
  } catch { throw new Error("The collector does not answer: see whether it still runs."); }
  let body = null;
  try { body = await answer.json(); } catch { /* told below */ }
  if (answer.status === 401) throw new TokenNeeded(body?.detail ?? "a token is needed");
  if (!answer.ok) throw new Error(body?.detail ?? `the collector answered ${answer.status}`);
  return body;
}

// The same page with other parameters, of several values each where a list is given; what is null or empty is taken out.
export function link(change) {
  const here = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(change)) {
    here.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== "") here.append(name, one);
  }
  const text = here.toString();
  return text ? `?${text}` : location.pathname;
}

// How the trace ids that stand together are cut: to the shortest beginning that tells them apart, else to beginning and
// end, else not at all.
export function idCut(ids) {
  const all = [...new Set(ids)], ends = (id) => (id.length > 17 ? `${id.slice(0, 8)}…${id.slice(-8)}` : id);
  const cuts = [...[8, 12, 16].map((n) => (id) => id.slice(0, n)), ends];
  return cuts.find((cut) => new Set(all.map(cut)).size === all.length) ?? ((id) => id);
}

export const traceLink = (id, cut) => el("a", { href: link({ view: "trace", id }), title: id, "data-go": true }, cut(id));
