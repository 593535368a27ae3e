// Charts by plotly, in the page's own colours, each with the table that says the same nearby.

import { el } from "./dom.js";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(more) {
  const ink = colour("ink"), line = colour("line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
    margin: { l: 64, r: 12, t: 8, b: 40 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
  };
}

export function chart(label, traces, more, tall = false) {
  const place = el("div", { class: tall ? "chart tall" : "chart", role: "img", "aria-label": label });
  const draw = () => {
    if (!place.isConnected) return requestAnimationFrame(draw);  // plotly measures where it draws
    return Plotly.newPlot(place, traces(colour), layout(more), { displayModeBar: false, responsive: true });
  };
  requestAnimationFrame(draw);
  return place;
}

const at = (steps) => steps.map((s) => new Date(s.start_unix_ns / 1e6));

// A step's width of room on both sides: one step alone would be drawn a millisecond wide.
function across(series) {
  const starts = series.steps.map((s) => s.start_unix_ns);
  return { range: [Math.min(...starts) - series.step_ns, Math.max(...starts) + series.step_ns].map((ns) => new Date(ns / 1e6)) };
}

const seconds = (ns) => (ns === null ? null : ns / 1e9);

export function percentiles(series, measure, name) {
  const tones = { p50: "decode", p95: "queue", p99: "bad" };
  return chart(`${name} percentiles over time`, (tone) => Object.entries(tones).map(([p, t]) => ({
    x: at(series.steps), y: series.steps.map((s) => seconds(s[`${measure}_${p}_ns`])), name: p, mode: "lines+markers",
    line: { color: tone(t) }, marker: { size: 4 },
  })), { xaxis: across(series), yaxis: { title: { text: `${name}, s` }, rangemode: "tozero" } });
}

export function traffic(series) {
  const per = series.step_ns / 1e9, width = series.step_ns / 1e6 * 0.9;
  return chart("Requests per second, errors and cancelled over time", (tone) => [
    { x: at(series.steps), y: series.steps.map((s) => (s.requests - s.errors - s.cancelled) / per), name: "ok", type: "bar", width, marker: { color: tone("decode") } },
    { x: at(series.steps), y: series.steps.map((s) => s.errors / per), name: "error", type: "bar", width, marker: { color: tone("bad") } },
    { x: at(series.steps), y: series.steps.map((s) => s.cancelled / per), name: "cancelled", type: "bar", width, marker: { color: tone("unattributed") } },
  ], { barmode: "stack", xaxis: across(series), yaxis: { title: { text: "requests/s" }, rangemode: "tozero" } });
}

export function rates(series) {
  const tones = { error: ["errors", "bad"], cancelled: ["cancelled", "unattributed"] };
  return chart("Share of requests that failed or were cancelled, over time", (tone) => Object.entries(tones).map(([name, [key, t]]) => ({
    x: at(series.steps), y: series.steps.map((s) => s[key] / s.requests), name, mode: "lines+markers",
    line: { color: tone(t) }, marker: { size: 4 },
  })), { xaxis: across(series), yaxis: { title: { text: "share" }, rangemode: "tozero", tickformat: ".1%" } });
}

export function throughput(series) {
  const per = series.step_ns / 1e9, tones = { p50: "decode", p95: "queue" };
  return chart("E2E against requests per second, a point a time step", (tone) => Object.entries(tones).map(([p, t]) => ({
    x: series.steps.map((s) => s.requests / per), y: series.steps.map((s) => seconds(s[`e2e_${p}_ns`])), name: `E2E ${p}`,
    mode: "markers", marker: { color: tone(t), size: 7 },
  })), { xaxis: { title: { text: "requests/s" }, rangemode: "tozero" }, yaxis: { title: { text: "E2E, s" }, rangemode: "tozero" } });
}

// Tokens for all users and for one, at each concurrency; the knee is marked.
export function levels(figures) {
  const x = figures.levels.map((l) => l.concurrency);
  const knee = figures.levels.find((l) => l.label === figures.knee);
  return chart("Output tokens per second for all users and for one, by requests in flight", (tone) => [
    { x, y: figures.levels.map((l) => l.tokens_per_s), name: "all users", mode: "lines+markers", line: { color: tone("decode") } },
    { x, y: figures.levels.map((l) => l.user_tokens_per_s), name: "one user", mode: "lines+markers", line: { color: tone("queue") }, yaxis: "y2" },
    ...(knee ? [{ x: [knee.concurrency], y: [knee.tokens_per_s], name: "knee", mode: "markers", marker: { color: tone("bad"), size: 12, symbol: "diamond" } }] : []),
  ], { xaxis: { title: { text: "requests in flight" } }, yaxis: { title: { text: "tokens/s, all" }, rangemode: "tozero" },
    yaxis2: { title: { text: "tokens/s, one user" }, overlaying: "y", side: "right", rangemode: "tozero" }, margin: { l: 64, r: 64, t: 8, b: 40 } });
}

export function heat(series) {
  // every step, and an empty one on both sides: plotly stretches a cell over steps that are not there
  const starts = series.cells.map((c) => c.start_unix_ns), first = Math.min(...starts) - series.step_ns;
  const xs = Array.from({ length: Math.round((Math.max(...starts) - first) / series.step_ns) + 2 }, (_, n) => first + n * series.step_ns);
  const ys = [...new Set(series.cells.map((c) => c.low_ns))].sort((a, b) => a - b);
  const z = ys.map(() => xs.map(() => null));
  for (const cell of series.cells) z[ys.indexOf(cell.low_ns)][Math.round((cell.start_unix_ns - first) / series.step_ns)] = cell.n;
  return chart(`Heat map of ${series.measure} over time`, (tone) => [{
    type: "heatmap", x: xs.map((x) => new Date(x / 1e6)), y: ys.map((y) => y / 1e9), z, hoverongaps: false,
    colorscale: [[0, tone("line")], [1, tone("accent")]], colorbar: { title: { text: "requests" } },
  }], { yaxis: { type: "log", title: { text: `${series.measure}, s` } } }, true);
}
