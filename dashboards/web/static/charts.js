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
    margin: { l: 64, r: 12, t: 8, b: 40 }, legend: { orientation: "h", y: 1.12 },
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
const seconds = (ns) => (ns === null ? null : ns / 1e9);

export function percentiles(series, measure, name) {
  const tones = { p50: "decode", p95: "queue", p99: "bad" };
  return chart(`${name} percentiles over time`, (tone) => Object.entries(tones).map(([p, t]) => ({
    x: at(series.steps), y: series.steps.map((s) => seconds(s[`${measure}_${p}_ns`])), name: p, mode: "lines+markers",
    line: { color: tone(t) }, marker: { size: 4 },
  })), { yaxis: { title: { text: `${name}, s` }, rangemode: "tozero" } });
}

export function traffic(series) {
  const per = series.step_ns / 1e9;
  return chart("Requests per second, errors and cancelled over time", (tone) => [
    { x: at(series.steps), y: series.steps.map((s) => (s.requests - s.errors - s.cancelled) / per), name: "ok", type: "bar", marker: { color: tone("decode") } },
    { x: at(series.steps), y: series.steps.map((s) => s.errors / per), name: "error", type: "bar", marker: { color: tone("bad") } },
    { x: at(series.steps), y: series.steps.map((s) => s.cancelled / per), name: "cancelled", type: "bar", marker: { color: tone("unattributed") } },
  ], { barmode: "stack", yaxis: { title: { text: "requests/s" }, rangemode: "tozero" } });
}

export function heat(series) {
  const xs = [...new Set(series.cells.map((c) => c.start_unix_ns))].sort((a, b) => a - b);
  const ys = [...new Set(series.cells.map((c) => c.low_ns))].sort((a, b) => a - b);
  const z = ys.map(() => xs.map(() => null));
  for (const cell of series.cells) z[ys.indexOf(cell.low_ns)][xs.indexOf(cell.start_unix_ns)] = cell.n;
  return chart(`Heat map of ${series.measure} over time`, (tone) => [{
    type: "heatmap", x: xs.map((x) => new Date(x / 1e6)), y: ys.map((y) => y / 1e9), z, hoverongaps: false,
    colorscale: [[0, tone("line")], [1, tone("accent")]], colorbar: { title: { text: "requests" } },
  }], { yaxis: { type: "log", title: { text: `${series.measure}, s` } } }, true);
}
