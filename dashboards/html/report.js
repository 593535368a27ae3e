// Draws the plots of the report out of the data that stands beside this, in the page's own colours.
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Only where plotly takes a colour: a text of a request may begin like one.
function coloured(value, paint = false) {
  if (typeof value === "string") return paint && value.startsWith("var:") ? colour(value.slice(4)) || value : value;
  if (Array.isArray(value)) return value.map((one) => coloured(one, paint));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, key === "color" || key === "colorscale")]));
  }
  return value;
}

function draw() {
  figures.forEach((figure, n) => {
    const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true };
    const names = new Set(["xaxis", "yaxis", ...Object.keys(figure.layout).filter((name) => /^[xy]axis/.test(name))]);
    const layout = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), size: 12 },
      margin: { l: 64, r: 12, t: 8, b: 40 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, ...figure.layout,
      ...Object.fromEntries([...names].map((name) => [name, { ...axis, ...figure.layout[name] }])) };
    Plotly.react(document.getElementById(`figure-${n}`), coloured(figure.data), layout, { displayModeBar: false, responsive: true });
  });
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
