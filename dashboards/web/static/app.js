// The page: its views by ?view=, its filters in the URL, so that a link says all.

import { TokenNeeded, ask, checkKnown, checkOnce, chosen, keepToken, link, takeToken } from "./api.js";
import { cut, el, visible, zone } from "./dom.js";
import { giveBack, held } from "./focus.js";
import { shownZone, taken, withZone } from "./times.js";
import { overview } from "./overview.js";
import { slices } from "./slices.js";
import { requests, tail } from "./requests.js";
import { trace } from "./trace.js";
import { compare, whatif } from "./analyses.js";
import { goodput } from "./goodput.js";
import { why } from "./why.js";

const VIEWS = { overview, slices, requests, tail, why, goodput, whatif, compare, trace };
const NAMES = { overview: "Overview", slices: "Slices", requests: "Requests", tail: "Live tail", why: "Why slow", goodput: "Goodput",
  whatif: "What if", compare: "Compare" };
const FIELDS = [
  ["since", "Since", "1h"], ["until", "Until", "now"], ["model", "Model", "any"], ["route", "Route", "any"],
  ["run", "Run", "any"], ["tag", "Tag", "NAME=VALUE"],
];
const TIMES = ["since", "until"];
const CHOICES = {
  status: ["", "ok", "error", "cancelled"], warm: ["include", "exclude", "only"], cached: ["include", "exclude", "only"],
};
const LIVE_EVERY_MS = 3000;
const main = document.getElementById("main");
let turn = 0;
let timer = null;

const view = () => new URLSearchParams(location.search).get("view") || "overview";

// Of the tab, so that two of them are told apart; a name out of the address is a stranger's text.
function titled() {
  const id = view() === "trace" ? new URLSearchParams(location.search).get("id") : null;
  return id ? `Trace ${visible(cut(id))}` : NAMES[view()] ?? (view() === "trace" ? "Trace" : "No such view");
}

// For a screen reader: what happened to the view, once; not each figure of a live one.
function say(text) { document.getElementById("told").textContent = visible(cut(text)); }

function go(href) {
  history.pushState(null, "", href);
  return show();
}

// What leads to another view gives the focus to it; what chooses within one keeps it, see show().
function goFrom(target) {
  go(target.getAttribute("href"));
  main.focus();
}

// Draw a part of the header again. What has the focus keeps it; what is gone leaves it to its form's button.
function redraw(place, parts) {
  const was = held(place);
  place.replaceChildren(...parts);
  if (was && (place.hidden || !giveBack(place, was, (all) => all.find((one) => one.type === "submit")))) main.focus();
}

function drawViews() {
  redraw(document.getElementById("views"), Object.entries(NAMES).map(([name, title]) => el("a", {
    "data-focus": name, href: link({ view: name === "overview" ? null : name, id: null, sort: null }), "data-go": true,
    "aria-current": view() === name ? "page" : null,
  }, title)));
  document.getElementById("zone").textContent = `Times in ${zone()}`;
}

function drawFilters() {
  const form = document.getElementById("filters");
  form.hidden = view() === "trace";
  const here = chosen();
  const fields = FIELDS.flatMap(([name, title, hint]) => (here.has(name) ? here.getAll(name) : [""]).map((value, n) =>
    el("label", {}, n ? `or ${title} ${n + 1}` : title,
      el("input", { type: "text", name, placeholder: name === "since" && !here.has("since") ? "all times" : hint, autocomplete: "off",
        value: TIMES.includes(name) ? shownZone(value) : value, title: TIMES.includes(name) ? `${title}: ${taken()}` : null,
        list: `known-${name}`, "data-focus": `${name}-${n}` }))));
  for (const [name, values] of Object.entries(CHOICES)) {
    const now = here.has(name) ? here.getAll(name).join(" ") : values[0];
    fields.push(el("label", {}, name[0].toUpperCase() + name.slice(1), el("select", { name },
      ...(values.includes(now) ? values : [...values, now]).map((v) =>
        el("option", { value: v, selected: now === v }, v.replaceAll(" ", " or ") || "any")))));
  }
  for (const name of ["operation", "exact"].filter((one) => here.has(one))) {
    fields.push(el("p", {}, `${name}: ${here.getAll(name).join(", ")} `, el("a", { href: link({ [name]: null }), "data-go": true }, "drop")));
  }
  const live = new URLSearchParams(location.search).get("live") === "1";
  redraw(form, [...fields, el("button", { type: "submit", "data-focus": "show" }, "Show"),
    el("button", { type: "button", "data-focus": "live", "aria-pressed": String(live), onclick: () => go(link({ live: live ? null : "1" })) },
      live ? "Live: on" : "Live: off")]);
}

// What the filters can be, beside their fields, once the view itself is there.
async function drawKnown() {
  const known = await ask("/facets");
  const lists = { model: known.models, route: known.routes, run: known.runs,
    tag: Object.entries(known.tags).flatMap(([name, values]) => values.map((value) => `${name}=${value}`)) };
  document.getElementById("known").replaceChildren(...Object.entries(lists).map(([name, values]) =>
    el("datalist", { id: `known-${name}` }, ...values.map((value) => el("option", { value, label: value })))));
}

function askToken(problem) {
  return el("form", { "aria-label": "Access", onsubmit: (event) => {
    event.preventDefault();
    keepToken(new FormData(event.target).get("token"));
    show();
  } }, el("p", { class: "bad", role: "alert" }, problem.message),
  el("label", {}, "Token", el("input", { type: "password", name: "token", required: true, autocomplete: "off" })),
  el("button", { type: "submit" }, "Use it"));
}

const failed = (problem) => (problem instanceof TokenNeeded ? [askToken(problem)]
  : [el("p", { class: "bad", role: "alert" }, problem.message),
    el("p", {}, el("button", { type: "button", "data-focus": "again", onclick: () => show() }, "Ask again"))]);

// The focus stays where it was when the same view is drawn again; where that is gone, on what stands in its place.
function replace(parts) {
  const was = held(main);
  main.replaceChildren(...parts);
  if (was && !giveBack(main, was, (all) => all[was.index])) main.focus({ preventScroll: true });
}

// `quietly`: what is shown stays until its successor is there.
async function show(quietly = false) {
  clearTimeout(timer);
  const mine = ++turn, was = quietly ? null : held(main);
  const back = () => { if (was && document.activeElement === main) giveBack(main, was); };
  main.setAttribute("aria-busy", "true");
  if (!quietly) {
    say(`Loading ${NAMES[view()] ?? view()}`);
    document.title = `${titled()} – Stagelens`;
    drawViews();
    drawFilters();
    main.replaceChildren(el("p", {}, "Loading…"));
    if (was) main.focus({ preventScroll: true });
  }
  let parts;
  try {
    checkKnown();
    checkOnce();
    const draw = Object.hasOwn(VIEWS, view()) ? VIEWS[view()] : null;
    if (!draw) throw new Error(`there is no view '${view()}': take one of those above`);
    parts = await draw();
  } catch (problem) { parts = failed(problem); }
  if (quietly) await parts.rest;
  if (mine !== turn) return;
  replace(parts);
  back();
  await parts.rest;
  if (mine !== turn) return;
  back();
  main.removeAttribute("aria-busy");
  const wrong = main.querySelector("[role=alert]") !== null;
  if (!quietly) say(`${NAMES[view()] ?? view()} ${!wrong ? "is shown" : parts.rest ? "is shown in part" : "could not be shown"}`);
  if (!quietly) drawKnown().catch(() => { /* the fields work without */ });
  if (new URLSearchParams(location.search).get("live") === "1" && view() !== "tail") timer = setTimeout(() => show(true), LIVE_EVERY_MS);
}

document.getElementById("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target), given = Object.fromEntries([...new Set(form.keys())].map((name) => [name, form.getAll(name)]));
  given.status = given.status.flatMap((value) => value.split(" "));
  for (const name of TIMES) given[name] = given[name].map(withZone);
  for (const name of ["warm", "cached"]) if (given[name][0] === "include") given[name] = null;
  go(link(given));
});
document.addEventListener("click", (event) => {
  const target = event.target.closest("a[data-go]");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  goFrom(target);
});
addEventListener("popstate", () => show());
addEventListener("stagelens:again", () => show(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
takeToken();
show();
