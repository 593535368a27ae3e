"""A result as CSV (one line a request) and as one HTML file."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from dashboards.visible import visible
from stagelens.bench.figures import percentile
from stagelens.bench.models import BenchResult, Level
from stagelens.bench.sample import Sample
from stagelens.bench.terminal import (
    counts_in_words,
    found_in_words,
    rates_in_words,
    server_in_words,
)
from tracer.clock import Anchor

_PLAIN = (
    "number", "measured", "conversation", "turn", "trace_id", "status", "error", "finish",
    "meant_input", "input_tokens", "meant_output", "output_tokens", "cached_tokens", "chunks",
    "choices", "resent", "said",
)  # fmt: skip
_TIMES = ("late_ns", "ttft_ns", "ttft_sent_ns", "e2e_ns", "e2e_sent_ns", "tpot_ns")
COLUMNS = ("level", "run", *_PLAIN, "intended_unix_ns", *_TIMES)
POINTS = 200

Ran = Sequence[tuple[Level, Sequence[Sample]]]


def to_csv(levels: Ran, anchor: Anchor) -> str:
    """Every request, warm-up ones too (``measured`` is False); empty is no data."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for level, samples in levels:
        for one in samples:
            plain = [_cell(getattr(one, name)) for name in _PLAIN]
            times = [getattr(one, name) for name in _TIMES]
            table.writerow(
                [level.label, level.run, *plain, anchor.to_unix_ns(one.intended_ns), *times]
            )
    return out.getvalue()


def _cell(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def _safe(text: str) -> str:
    """For HTML; what a stranger wrote comes in as characters that are seen."""
    return html.escape(visible(text))


def to_html(result: BenchResult, levels: Ran) -> str:
    """One file that needs nothing else: the figures, and how latency is distributed."""
    bundle = files("plotly") / "package_data" / "plotly.min.js"
    plotly = bundle.read_text(encoding="utf-8")
    charts = [_distribution(levels, "ttft"), _distribution(levels, "e2e")]
    if result.search or len(levels) > 1:
        charts.append(_curve(result))
    places = "".join(f'<div id="c{i}" class="chart"></div>' for i in range(len(charts)))
    data = json.dumps(charts).replace("<", "\\u003c")
    rows = "".join(_rows(level) for level in result.levels)
    notes = "".join(f"<li>{_safe(line)}" for line in result.assumptions)
    facts = f"{result.machine}; {json.dumps(result.versions)}; {result.server_note}"
    what = "".join(f"<p>{_safe(line)}</p>" for line in _in_words(result))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{_safe(result.name)}</title><style>{_STYLE}</style>"
        f"<h1>{_safe(result.name)}</h1><p>{_safe(result.model)} at "
        f"{_safe(result.url)}</p>{what}<table>{_HEAD}{rows}</table>{places}<ul>{notes}</ul>"
        f"<p>{_safe(facts)}</p><script>{plotly}</script><script>"
        f"{data}.forEach((c, i) => Plotly.newPlot('c' + i, c.data, c.layout));</script></html>\n"
    )


_STYLE = (
    "body{font:16px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right}"
    "tr:nth-child(even){background:#f3f3f3}.chart{height:26em}"
)
_HEAD = (
    "<tr><th>level<th>figure<th>n<th>no data<th>p50 ms<th>p90 ms<th>p95 ms<th>p99 ms<th>max ms"
)


def _in_words(result: BenchResult) -> list[str]:
    """What became of the requests, as on the terminal."""
    lines = ["Interrupted: this is what there was until then."] if result.interrupted else []
    for level in result.levels:
        lines += [counts_in_words(level), *rates_in_words(level)]
        if level.server is not None:
            found, *reading = server_in_words(level.server)
            lines += [f"{level.label}: {found}", *reading]
    return [*lines, found_in_words(result.search)] if result.search else lines


def _rows(level: Level) -> str:
    side = level.server
    told = (*side.figures, side.outside, side.before) if side else ()
    server = [(f"proxy: {one.measure}", one) for one in told if one is not None]
    return "".join(
        f"<tr><td>{_safe(level.label)}<td>{name}<td>{one.n}<td>{one.no_data}"
        + "".join(
            f"<td>{'-' if ns is None else f'{ns / 1e6:.3f}'}"
            for ns in (one.p50_ns, one.p90_ns, one.p95_ns, one.p99_ns, one.max_ns)
        )
        for name, one in [*((one.measure, one) for one in level.figures), *server]
        if one.n
    )


def _distribution(levels: Ran, measure: str) -> dict[str, Any]:
    """For each level: which share of the requests took at most how long."""
    data = []
    for level, samples in levels:
        values = sorted(
            v for s in samples if s.measured and not s.error
            and (v := getattr(s, f"{measure}_ns")) is not None
        )  # fmt: skip
        at = [100 * i / POINTS for i in range(POINTS + 1)] if values else []
        times = [(percentile(values, level_at) or 0) / 1e6 for level_at in at]
        data.append({"x": times, "y": at, "name": level.label, "mode": "lines"})
    return {"data": data, "layout": _layout(f"{measure.upper()}, ms", "requests at most, %")}


def _curve(result: BenchResult) -> dict[str, Any]:
    """Over the load: answers a second, and good ones."""
    levels = sorted(result.levels, key=lambda one: one.rate or one.concurrency or 0)
    x = [one.rate or one.concurrency for one in levels]
    data = [{"x": x, "y": [one.done_per_s for one in levels], "name": "answered", "mode": "lines+markers"}]
    if any(one.good_per_s is not None for one in levels):
        data.append({"x": x, "y": [one.good_per_s for one in levels], "name": "within the limits",
                     "mode": "lines+markers"})  # fmt: skip
    return {"data": data, "layout": _layout("rate or concurrency", "requests a second")}


def _layout(x: str, y: str) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}, "showlegend": True}
