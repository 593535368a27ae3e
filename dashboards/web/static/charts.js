// Charts by plotly, in the page's own colours, each with the table that says the same nearby.

import { el } from "./dom.js";
import { length, middle, row, timeline, whole } from "./steps.js";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(more) {
  const ink = colour("ink"), line = colour("line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const every = Object.fromEntries(["xaxis", "yaxis", ...Object.keys(more).filter((name) => /^[xy]axis/.test(name))]
    .map((name) => [name, { ...axis, ...more[name] }]));
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
    margin: { l: 64, r: 12, t: 8, b: 40 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    ...more, ...every,
  };
}

let loading = null;

// Plotly's bundle is larger than all else of the page: the first view with a chart fetches it, beside its figures, and
// no figure waits for it. What could not be fetched is fetched again by the next view.
export function library() {
  loading ??= new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = "/web/plotly.min.js";
    script.onload = () => loaded(globalThis.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      failed(new Error("This chart could not be drawn: its library did not come. The figures in tables need none."));
    };
    document.head.append(script);
  });
  return loading;
}

export function chart(label, traces, more, tall = false) {
  const place = el("div", { class: tall ? "chart tall" : "chart", role: "img", "aria-label": label });
  const draw = (plotly) => requestAnimationFrame(() => {
    if (!place.isConnected) return draw(plotly);  // plotly measures where it draws
    return plotly.newPlot(place, traces(colour), layout(more), { displayModeBar: false, responsive: true });
  });
  library().then(draw, (problem) => place.replaceWith(el("p", { class: "bad", role: "alert" }, problem.message)));
  return place;
}

const seconds = (ns) => (ns === null ? null : ns / 1e9);

// What every chart over time shares: the steps in a row, where each stands, and the axis.
function laid(series) {
  const line = timeline(series), steps = row(series, line);
  return { line, steps, x: steps.map((step, n) => middle(series, line, step, n)),
    y: (of) => steps.map((step) => (step ? of(step) : null)) };
}

export function percentiles(series, measure, name) {
  const tones = { p50: "decode", p95: "queue", p99: "bad" }, { line, x, y } = laid(series);
  return chart(`${name} percentiles over time`, (tone) => Object.entries(tones).map(([p, t]) => ({
    x, y: y((s) => seconds(s[`${measure}_${p}_ns`])), name: p, mode: "lines+markers",
    line: { color: tone(t) }, marker: { size: 4 },
  })), { xaxis: line.axis, yaxis: { title: { text: `${name}, s` }, rangemode: "tozero" } });
}

// A bar is as wide as what is seen of its step, and its area is the number of requests.
export function traffic(series) {
  const { line, x, y } = laid(series), per = (s) => length(series, s) / 1e9;
  const kinds = { ok: [(s) => s.requests - s.errors - s.cancelled, "decode"], error: [(s) => s.errors, "bad"],
    cancelled: [(s) => s.cancelled, "unattributed"] };
  const width = y((s) => length(series, s) / 1e6 * 0.96);
  return chart("Requests per second, errors and cancelled over time", (tone) => Object.entries(kinds).map(([name, [of, t]]) => ({
    x, y: y((s) => of(s) / per(s)), name, type: "bar", width, marker: { color: tone(t) } })),
  { barmode: "stack", xaxis: line.axis, yaxis: { title: { text: "requests/s" }, rangemode: "tozero" } });
}

export function rates(series) {
  const tones = { error: ["errors", "bad"], cancelled: ["cancelled", "unattributed"] }, { line, x, y } = laid(series);
  return chart("Share of requests that failed or were cancelled, over time", (tone) => Object.entries(tones).map(([name, [key, t]]) => ({
    x, y: y((s) => s[key] / s.requests), name, mode: "lines+markers",
    line: { color: tone(t) }, marker: { size: 4 },
  })), { xaxis: line.axis, yaxis: { title: { text: "share" }, rangemode: "tozero", tickformat: ".1%" } });
}

// Of steps that the window cuts the rate is that of little time: they are left out where others are.
export function throughput(series) {
  const tones = { p50: "decode", p95: "queue" }, uncut = series.steps.filter((s) => whole(series, s));
  const steps = uncut.length ? uncut : series.steps;
  return chart("E2E against requests per second, a point a time step", (tone) => Object.entries(tones).map(([p, t]) => ({
    x: steps.map((s) => s.requests / (length(series, s) / 1e9)), y: steps.map((s) => seconds(s[`e2e_${p}_ns`])), name: `E2E ${p}`,
    mode: "markers", marker: { color: tone(t), size: 7 },
  })), { xaxis: { title: { text: "requests/s" }, rangemode: "tozero" }, yaxis: { title: { text: "E2E, s" }, rangemode: "tozero" } });
}

// Tokens for all users and for one, at each concurrency; the knee is marked, and thin levels are open. The two have
// shapes of their own: a single level stands at the same height on both axes, and one would hide the other.
export function levels(figures) {
  const x = figures.levels.map((l) => l.concurrency);
  const marker = (shape, size) => ({ size, symbol: figures.levels.map((l) => (l.thin ? `${shape}-open` : shape)) });
  const knee = figures.levels.find((l) => l.label === figures.knee);
  return chart("Output tokens per second for all users and for one, by requests in flight", (tone) => [
    { x, y: figures.levels.map((l) => l.tokens_per_s), name: "all users", mode: "lines+markers", line: { color: tone("decode") }, marker: marker("square", 12) },
    { x, y: figures.levels.map((l) => l.user_tokens_per_s), name: "one user", mode: "lines+markers", line: { color: tone("queue") }, marker: marker("circle", 7), yaxis: "y2" },
    ...(knee ? [{ x: [knee.concurrency], y: [knee.tokens_per_s], name: "knee", mode: "markers", marker: { color: tone("bad"), size: 12, symbol: "diamond" } }] : []),
  ], { xaxis: { title: { text: "requests in flight" } }, yaxis: { title: { text: "tokens/s, all" }, rangemode: "tozero" },
    yaxis2: { showgrid: false, title: { text: "tokens/s, one user" }, overlaying: "y", side: "right", rangemode: "tozero" }, margin: { l: 64, r: 64, t: 8, b: 40 } });
}

// One, two and five of each power of ten; the powers alone where those are many, and the ends where they are fewer than
// two. Plotly's own labels of every digit stand in each other. html/steps.py has the same.
export function logAxis(low, high) {
  const powers = Array.from({ length: Math.floor(Math.log10(high)) - Math.floor(Math.log10(low)) + 1 }, (_, n) => Math.floor(Math.log10(low)) + n);
  const of = (digits) => powers.flatMap((p) => digits.map((d) => Number(`${d}e${p}`))).filter((v) => low <= v && v <= high);
  let found = of([1, 2, 5]);
  if (found.length > 8) found = of([1]);
  if (found.length < 2) found = [low, high].map((end) => Number(end.toPrecision(2)));
  return { type: "log", tickmode: "array", tickvals: found, ticktext: found.map(String) };
}

// Cells by their edges: given middles, plotly guesses the edges, and stretches a cell over empty ones.
export function heat(series) {
  const line = timeline(series), level = (cell) => Math.round(2 * Math.log2(Math.max(cell.low_ns, 1)));
  const levels = series.cells.map(level), low = Math.min(...levels), high = Math.max(...levels);
  const z = Array.from({ length: high - low + 1 }, () => Array.from({ length: line.count }, () => null));
  for (const cell of series.cells) z[level(cell) - low][line.at(cell.start_unix_ns)] = cell.n;
  const x = Array.from({ length: line.count + 1 }, (_, n) => line.wall(line.first + n * series.step_ns));
  const y = Array.from({ length: z.length + 1 }, (_, n) => 2 ** ((low + n) / 2) / 1e9);
  return chart(`Heat map of ${series.measure} over time`, (tone) => [{
    type: "heatmap", x, y, z, hoverongaps: false, zmin: 0,
    colorscale: [[0, tone("line")], [1, tone("accent")]], colorbar: { title: { text: "requests" } },
  }], { xaxis: line.axis, yaxis: { title: { text: `${series.measure.toUpperCase()}, s` }, ...logAxis(y[0], y.at(-1)) } }, true);
}
