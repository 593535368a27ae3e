// Where steps of time lie on a chart, and how long of each the window holds.

// The part of a step that lies in the window: the first and the last are often cut by its ends.
export function seen(series, step) {
  const from = Math.max(step.start_unix_ns, series.from_unix_ns);
  const to = Math.min(step.start_unix_ns + series.step_ns, series.to_unix_ns);
  return from < to ? { from, to } : { from: step.start_unix_ns, to: step.start_unix_ns + series.step_ns };
}

export const length = (series, step) => { const part = seen(series, step); return part.to - part.from; };
export const whole = (series, step) => length(series, step) > series.step_ns * 0.99;

// Plotly's axes have no zone: they get the wall clock of the last step's offset throughout, so that
// an hour which the clocks go through twice is not drawn over itself.
export function timeline(series) {
  const starts = series.steps.map((s) => s.start_unix_ns);
  const first = Math.min(...starts), last = Math.max(...starts), end = last + series.step_ns;
  const minutes = (ns) => new Date(ns / 1e6).getTimezoneOffset(), shift = minutes(last);
  const wall = (ns) => new Date(ns / 1e6 - shift * 60000).toISOString().slice(0, -1);
  const room = series.step_ns / 2;
  const axis = { type: "date", range: [wall(first - room), wall(end + room)], tickangle: 0, nticks: innerWidth < 640 ? 4 : 0 };
  if (minutes(first) !== shift) axis.title = { text: `${offset(shift)} throughout: the clocks change in this time` };
  const count = Math.round((end - first) / series.step_ns);
  return { wall, axis, first, count, at: (start) => Math.round((start - first) / series.step_ns) };
}

function offset(minutes) {
  const size = Math.abs(minutes), two = (n) => String(n).padStart(2, "0");
  return `UTC${minutes > 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

// The steps in a row; null where a step has no request, so that no line is drawn across it.
export function row(series, line) {
  const steps = Array.from({ length: line.count }, () => null);
  for (const one of series.steps) steps[line.at(one.start_unix_ns)] = one;
  return steps;
}

// The middle of what is seen of a step; of one without requests, of the step.
export function middle(series, line, step, place) {
  const part = step ? seen(series, step) : { from: line.first + place * series.step_ns, to: line.first + (place + 1) * series.step_ns };
  return line.wall((part.from + part.to) / 2);
}
