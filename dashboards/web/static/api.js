// The API under /api/v1, asked with the filters that stand in the page's own URL.

export const FILTERS = ["since", "until", "model", "route", "status", "run", "tag", "warm", "cached", "operation"];

export function chosen() {
  const here = new URLSearchParams(location.search);
  const picked = new URLSearchParams();
  for (const name of FILTERS) for (const value of here.getAll(name)) if (value) picked.append(name, value);
  if (!picked.has("since") && !picked.has("run")) picked.set("since", "1h");
  return picked;
}

export async function ask(path, more = {}, filtered = true) {
  const query = filtered ? chosen() : new URLSearchParams();
  for (const [name, values] of Object.entries(more)) {
    for (const value of Array.isArray(values) ? values : [values]) query.append(name, value);
  }
  const text = query.toString();
  const answer = await fetch(`/api/v1${path}${text ? `?${text}` : ""}`);
  let body = null;
  try { body = await answer.json(); } catch { /* told below */ }
  if (!answer.ok) throw new Error(body?.detail ?? `the collector answered ${answer.status}`);
  return body;
}

// The same page with other parameters; what is null is taken out.
export function link(change) {
  const here = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(change)) {
    here.delete(name);
    if (value !== null && value !== "") here.set(name, value);
  }
  const text = here.toString();
  return text ? `?${text}` : location.pathname;
}
