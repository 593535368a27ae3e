// The page: its views by ?view=, its filters in the URL, so that a link says all.

import { ask, chosen, link } from "./api.js";
import { el, zone } from "./dom.js";
import { overview, slices } from "./overview.js";
import { requests, trace } from "./requests.js";
import { compare, whatif } from "./analyses.js";

const VIEWS = { overview, slices, requests, whatif, compare, trace };
const NAMES = { overview: "Overview", slices: "Slices", requests: "Requests", whatif: "What if", compare: "Compare" };
const FIELDS = [
  ["since", "Since", "1h"], ["until", "Until", "now"], ["model", "Model", "any"], ["route", "Route", "any"],
  ["run", "Run", "any"], ["tag", "Tag", "NAME=VALUE"],
];
const CHOICES = {
  status: ["", "ok", "error", "cancelled"], warm: ["include", "exclude", "only"], cached: ["include", "exclude", "only"],
};
const main = document.getElementById("main");
let turn = 0;
let timer = null;

const view = () => new URLSearchParams(location.search).get("view") ?? "overview";

function go(href) {
  history.pushState(null, "", href);
  show();
}

function drawViews() {
  const nav = document.getElementById("views");
  nav.replaceChildren(...Object.entries(NAMES).map(([name, title]) => el("a", {
    href: link({ view: name === "overview" ? null : name, id: null, sort: null }), "data-go": true,
    "aria-current": view() === name ? "page" : null,
  }, title)));
  document.getElementById("zone").textContent = `Times in ${zone()}`;
}

function drawFilters() {
  const form = document.getElementById("filters");
  const here = chosen();
  const fields = FIELDS.map(([name, title, hint]) => el("label", {}, title,
    el("input", { type: "text", name, placeholder: hint, value: here.get(name) ?? "", autocomplete: "off" })));
  for (const [name, values] of Object.entries(CHOICES)) {
    fields.push(el("label", {}, name[0].toUpperCase() + name.slice(1), el("select", { name },
      ...values.map((v) => el("option", { value: v, selected: (here.get(name) ?? values[0]) === v }, v || "any")))));
  }
  const live = new URLSearchParams(location.search).get("live") === "1";
  form.replaceChildren(...fields, el("button", { type: "submit" }, "Show"),
    el("button", { type: "button", "aria-pressed": String(live), onclick: () => go(link({ live: live ? null : "1" })) },
      live ? "Live: on" : "Live: off"));
}

async function show(quietly = false) {
  clearTimeout(timer);
  const mine = ++turn;
  if (!quietly) {
    drawViews();
    drawFilters();
    main.setAttribute("aria-busy", "true");
    main.replaceChildren(el("p", {}, "Loading…"));
  }
  try {
    const draw = VIEWS[view()];
    if (!draw) throw new Error(`there is no view ${view()}: take one of those above`);
    const parts = await draw();
    if (mine === turn) main.replaceChildren(...parts);
  } catch (problem) {
    if (mine === turn) main.replaceChildren(el("p", { class: "bad", role: "alert" }, problem.message),
      el("p", {}, el("button", { type: "button", onclick: () => show() }, "Ask again")));
  }
  if (mine !== turn) return;
  main.removeAttribute("aria-busy");
  if (new URLSearchParams(location.search).get("live") === "1") timer = setTimeout(() => show(true), 3000);
}

document.getElementById("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  for (const name of ["warm", "cached"]) if (given[name] === "include") given[name] = null;
  go(link(given));
});
document.addEventListener("click", (event) => {
  const target = event.target.closest("a[data-go]");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(target.getAttribute("href"));
  main.focus();
});
addEventListener("popstate", () => show());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
addEventListener("DOMContentLoaded", () => show());
if (document.readyState !== "loading") show();
