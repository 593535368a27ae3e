// Elements and figures. Text only ever goes in as text: names and attributes are hostile input.

// Characters that are obeyed, turn what follows, or show nothing are written out, as visible.py does it.
// So are line ends and tabs, which would look like blanks. The joiners between letters that are not ASCII stay: scripts and emoji need them.
const HIDDEN = /(?!(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f]))[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/gu;
const SHORT = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };
export const visible = (text) => text.replace(HIDDEN, (one) => {
  if (one in SHORT) return SHORT[one];
  const code = one.codePointAt(0), [mark, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
});
// Names have no greatest length: where one stands as a name it is cut, with more of it in the title; what is read as
// a text is cut later, and not below the 4,096 characters that the API gives of a value.
const MOST = { name: 120, folded: 600, title: 1000, text: 5000 };
const NAMES = ["a", "button", "caption", "dt", "h2", "h3", "option", "summary", "td", "th"];
export function cut(text, most = MOST.name) {
  if (text.length <= most) return text;
  const kept = text.slice(0, most);
  return `${/[\ud800-\udbff]$/.test(kept) ? kept.slice(0, -1) : kept}…`;  // no half of a character
}
// A value of which nothing would be seen; and a name, of which an empty one is none.
export const quoted = (value) => (value.trim() ? value : `"${value}"`);
export const word = (value) => (value ? quoted(value) : "no data");
const READ_OUT = ["title", "aria-label", "aria-valuetext", "label"];
const asRead = (name, value) => (READ_OUT.includes(name) ? visible(cut(String(value), MOST.title)) : value);
const asNode = (child, most) => (child instanceof Node ? child : visible(cut(String(child), most)));

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : asRead(name, value));
  }
  const most = NAMES.includes(tag) ? MOST.name : MOST.text, long = children.find((child) => typeof child === "string" && child.length > most);
  if (long && most === MOST.name && !made.hasAttribute("title")) made.setAttribute("title", asRead("title", long));
  made.append(...children.filter((child) => child !== null).map((child) => asNode(child, most)));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, asRead(name, value));
  made.append(...children.map((child) => asNode(child, MOST.title)));
  return made;
}

export const STAGES = ["prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver", "unattributed"];

// What no measurement gives is written with three digits and a power of ten, not as a row of digits. As seconds: 30,000 years.
const BEYOND = 1e12;
const beyond = (value) => value.toExponential(2).replace(/\.?0+e/, "e").replace("-", "−");
export const fixed = (value, digits) => (Math.abs(value) < BEYOND ? value.toFixed(digits) : beyond(value));

// Nanoseconds as a reader wants them; null is no data, never 0.
export function time(ns) {
  if (ns === null || ns === undefined) return "no data";
  if (ns < 0) return `−${time(-ns)}`;
  if (ns >= BEYOND * 1e9) return `${beyond(ns / 1e9)} s`;
  const ms = ns / 1e6;
  if (ms >= 86400000) return `${(ms / 86400000).toFixed(2)} d`;
  if (ms >= 3600000) return `${(ms / 3600000).toFixed(2)} h`;
  if (ms >= 60000) return `${(ms / 60000).toFixed(1)} min`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms >= 1) return `${ms.toFixed(1)} ms`;
  if (ns >= 1000 || ns === 0) return `${(ns / 1e3).toFixed(0)} µs`;
  return ns < 1 ? "<1 ns" : `${ns.toFixed(0)} ns`;
}

// The unit once where both bounds have the same; an open side is "?". It can be broken behind the dash alone.
export function bounds(low, high) {
  const [from, to] = [time(low), time(high)].map((text) => (text === "no data" ? "?" : text));
  const unit = (text) => text.split(" ")[1];
  return `${unit(from) === unit(to) && unit(to) ? from.split(" ")[0] : from} – ${to}`.replaceAll(" ", "\u00a0").replace("–\u00a0", "– ");
}

export const count = (n) => (n === null || n === undefined ? "no data" : Math.abs(n) < BEYOND ? n.toLocaleString("en") : beyond(n));
export const many = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
// What rounds to zero has no sign.
export const percent = (part) => `${fixed(part * 100, 1).replace(/^-(0\.0)$/, "$1").replace("-", "−")} %`;
// With three digits, as the command line writes it: a low rate is no 0.
export function rate(value) {
  if (value === null || value === undefined) return "no data";
  if (Math.abs(value) >= BEYOND) return beyond(value);
  const digits = [[100, 0], [10, 1], [1, 2]].find(([least]) => value >= least)?.[1];
  return digits === undefined ? String(Number(value.toPrecision(3)))
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
// Only 0 is told as 0, and only all as 100.
export function share(part) {
  if (part === null || part === undefined) return "no data";
  const told = percent(part);
  if (part > 0 && told === "0.0 %") return "<0.1 %";
  return part < 1 && told === "100.0 %" ? ">99.9 %" : told;
}
export const when = (ns) => new Date(ns / 1e6).toLocaleString();
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

export function table(caption, heads, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {},
        ...row.map((cell, n) => cellOf(n, cell ?? "no data")))))));
}

// What is too long for a column is cut by the style sheet; all of it is in the title.
export function cellOf(n, cell) {
  const long = typeof cell === "string" && cell.length > 40 ? cell : null;
  return el(n ? "td" : "th", { ...(n ? {} : { scope: "row" }), title: long }, cell);
}

// A value of more than some lines is opened to be read whole.
const folded = (value) => (typeof value !== "string" || value.length <= MOST.folded ? value
  : el("details", {}, el("summary", {}, cut(value)), value));

// Names and what they hold; a value is text or an element.
export function facts(rows) {
  return el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, folded(value))]));
}

// One horizontal bar of parts, each {stage, size, title}; sizes of any unit.
export function stack(parts, label) {
  const whole = parts.reduce((sum, part) => sum + part.size, 0) || 1;
  let at = 0;
  const bars = parts.filter((p) => p.size > 0).map((part) => {
    const bar = svg("rect", { x: (at / whole) * 1000, y: 0, width: (part.size / whole) * 1000, height: 20,
      class: `s-${STAGES.includes(part.stage) ? part.stage : "none"}` }, svg("title", {}, part.title));
    at += part.size;
    return bar;
  });
  return svg("svg", { class: "stack", viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img",
    "aria-label": label }, ...bars);
}

// A part that is made when it is opened first.
export function later(title, make) {
  const whole = el("details", {}, el("summary", {}, title));
  whole.addEventListener("toggle", () => { if (whole.open && whole.children.length === 1) whole.append(make()); });
  return whole;
}

// A difference of times, with its sign.
export function signed(ns) {
  if (ns === null || ns === undefined) return "no data";
  return ns < 0 ? `−${time(-ns)}` : `+${time(ns)}`;
}

// A change of a figure, with its sign; what rounds to zero has none.
export const change = (part) => (part > 0 && percent(part) !== "0.0 %" ? `+${percent(part)}` : percent(part));
