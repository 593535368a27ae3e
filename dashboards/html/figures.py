"""The report's plots as plotly takes them: plain data, coloured by name when they are drawn.

A colour ``var:NAME`` is the style sheet's, so that light and dark have their own. Texts
that come from requests go through :func:`label`, because plotly reads tags in its labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboards.html.steps import Laid, counts, laid, log_axis
from dashboards.models.report import Report, Slice, StageFigures
from dashboards.models.series import Series, Step
from dashboards.queries.series import CELLS_PER_DOUBLING
from dashboards.times import NS_PER_S, many
from dashboards.visible import quoted, visible

LEVELS: Final = ("p50", "p95", "p99")
MOST_LABEL_CHARS: Final = 24
LEAST_SHARE: Final = 0.1
"""A stage that fewer of the requests ran is not in the stack of percentiles."""
_TONES: Final = {"p50": "var:decode", "p95": "var:queue", "p99": "var:bad"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot; ``title`` also says to a screen reader what it shows."""

    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    note: str = ""


def label(text: str) -> str:
    """``text`` as plotly shows it letter by letter."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def figures(report: Report, series: Sequence[Series]) -> list[Figure]:
    """All plots; ``series`` are those of E2E and of TTFT. None where no request is."""
    if not report.overall.counts.total:
        return []
    first = series[0]
    found = [
        _stacks(report.overall),
        _shares(report.overall),
        _over_time(first, "ttft", "First token (TTFT) over time"),
        _over_time(first, "e2e", "Whole request (E2E) over time"),
        _traffic(first),
        _rates(first),
        _throughput(first),
        *(_heat(one) for one in series if one.cells),
    ]
    if report.by:
        found += [_groups(report, measure) for measure in ("ttft", "e2e")]
    return found


def _whole(overall: Slice) -> list[StageFigures]:
    return [one for one in overall.stages if one.part_of is None]


def _stacks(overall: Slice) -> Figure:
    """A stage that few requests ran is named in the note: its percentiles are of those few alone."""
    levels = list(reversed(LEVELS))
    ran = [one for one in _whole(overall) if one.n]
    often = [one for one in ran if one.n >= LEAST_SHARE * overall.counts.total]
    rare = ", ".join(f"{one.stage} (n {one.n:,})" for one in ran if one not in often)
    left = f" Not in the bars, since fewer than one in ten requests ran them: {rare}." if rare else ""
    return Figure(
        "Each stage's p50, p95 and p99",
        [
            {
                "type": "bar", "orientation": "h", "name": f"{one.stage} (n {one.n:,})", "y": levels,
                "x": [_seconds(getattr(one, f"{p}_ns")) for p in levels],
                "marker": {"color": f"var:{one.stage}"},
            }
            for one in often
        ],
        {"barmode": "stack", "xaxis": {"title": {"text": "s"}}},
        f"Percentiles of single stages do not add up to the percentile of the whole. n: of "
        f"{many(overall.counts.total, 'request')}, those that ran the stage.{left}",
    )  # fmt: skip


def _shares(overall: Slice) -> Figure:
    rows: tuple[tuple[str, Callable[[StageFigures], float | None]], ...] = (
        ("slowest 5 %", lambda one: one.slowest_share),
        ("all", lambda one: one.share),
    )
    return Figure(
        "Shares of the time: all requests, and the slowest 5 %",
        [
            {
                "type": "bar", "orientation": "h", "name": one.stage, "y": [name for name, _ in rows],
                "x": [share(one) for _, share in rows], "marker": {"color": f"var:{one.stage}"},
            }
            for one in _whole(overall)
        ],
        {"barmode": "stack", "xaxis": {"tickformat": ".0%", "range": [0, 1]}},
    )  # fmt: skip


def _over_time(series: Series, measure: str, title: str) -> Figure:
    line = laid(series)

    def level(name: str) -> Callable[[Step], float | None]:
        return lambda step: _seconds(getattr(step, f"{measure}_{name}_ns"))

    return Figure(
        title,
        [
            {
                "x": line.middles, "name": p, "mode": "lines+markers", "line": {"color": _TONES[p]},
                "y": line.values(level(p)),
            }
            for p in LEVELS
        ],
        {"xaxis": {"title": {"text": "UTC"}}, "yaxis": {"title": {"text": "s"}, "rangemode": "tozero"}},
        f"From a t-digest of each step; the tables are exact.{_later(series)}",
    )  # fmt: skip


def _later(series: Series) -> str:
    if not series.later:
        return ""
    return (
        f" {many(series.later, 'request')} began later than the report was made, by a clock that is ahead: "
        "in no step."
    )


def _traffic(series: Series) -> Figure:
    line = laid(series)
    kinds: tuple[tuple[str, str, Callable[[Step], int]], ...] = (
        ("ok", "var:decode", lambda step: step.requests - step.errors - step.cancelled),
        ("error", "var:bad", lambda step: step.errors),
        ("cancelled", "var:unattributed", lambda step: step.cancelled),
    )
    return Figure(
        "Requests per second",
        [
            {
                "type": "bar", "x": line.middles, "y": _per_s(line, of), "width": line.widths_ms,
                "name": name, "marker": {"color": tone},
            }
            for name, tone, of in kinds
        ],
        {"barmode": "stack", "xaxis": {"title": {"text": "UTC"}}},
        "A bar is as wide as what the window holds of its step.",
    )  # fmt: skip


def _per_s(line: Laid, of: Callable[[Step], int]) -> list[float | None]:
    return [
        None if one is None else of(one) / line.seconds(n) for n, one in enumerate(line.steps)
    ]


def _rates(series: Series) -> Figure:
    line = laid(series)
    kinds: tuple[tuple[str, str, Callable[[Step], int]], ...] = (
        ("error", "var:bad", lambda step: step.errors),
        ("cancelled", "var:unattributed", lambda step: step.cancelled),
    )

    def share(of: Callable[[Step], int]) -> Callable[[Step], float]:
        return lambda step: of(step) / step.requests

    return Figure(
        "Share of requests that failed or were cancelled",
        [
            {
                "x": line.middles, "y": line.values(share(of)),
                "name": name, "mode": "lines+markers", "line": {"color": tone},
            }
            for name, tone, of in kinds
        ],
        {"xaxis": {"title": {"text": "UTC"}}, "yaxis": {"tickformat": ".1%", "rangemode": "tozero"}},
    )  # fmt: skip


def _throughput(series: Series) -> Figure:
    """Steps that the window cuts are left out where there are others: theirs is a rate of little time."""
    line = laid(series)
    there = [(n, one) for n, one in enumerate(line.steps) if one is not None]
    steps = [(n, one) for n, one in there if not line.cut(n)] or there
    return Figure(
        "Throughput against latency, a point a step",
        [
            {
                "x": [one.requests / line.seconds(n) for n, one in steps], "name": p, "mode": "markers",
                "y": [_seconds(getattr(one, f"e2e_{p}_ns")) for _, one in steps],
                "marker": {"color": _TONES[p]},
            }
            for p in ("p50", "p95")
        ],
        {"xaxis": {"title": {"text": "requests/s"}}, "yaxis": {"title": {"text": "E2E, s"}}},
    )  # fmt: skip


def _heat(series: Series) -> Figure:
    """Cells by their edges: given middles, plotly stretches a cell over empty ones."""
    line, name = laid(series), series.measure.upper()
    levels = [_level(cell.low_ns) for cell in series.cells]
    rows = counts(line, levels)
    edges = [2 ** ((min(levels) + n) / CELLS_PER_DOUBLING) / NS_PER_S for n in range(len(rows) + 1)]
    return Figure(
        f"Heat map of {name}",
        [
            {
                "type": "heatmap", "x": line.edges, "y": edges, "z": rows, "zmin": 0,
                "hoverongaps": False, "colorbar": {"title": {"text": "requests"}},
                "colorscale": [[0, "var:line"], [1, "var:accent"]],
            }
        ],
        {"xaxis": {"title": {"text": "UTC"}}, "yaxis": {"title": {"text": f"{name}, s"}, **log_axis(edges)}},
    )  # fmt: skip


def _level(low_ns: int) -> int:
    return round(math.log2(max(low_ns, 1)) * CELLS_PER_DOUBLING)


def _groups(report: Report, measure: str) -> Figure:
    names = [_short(visible(key_of(group)), n) for n, group in enumerate(report.groups, 1)]
    figures = [group.measure(measure) for group in report.groups]
    return Figure(
        f"{measure.upper()} by {label(', '.join(report.by))}",
        [
            {
                "type": "bar", "x": names, "name": p, "marker": {"color": _TONES[p]},
                "y": [_seconds(getattr(one, f"{p}_ns")) for one in figures],
            }
            for p in ("p50", "p95")
        ],
        {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": "s"}}},
    )  # fmt: skip


def _short(name: str, place: int) -> str:
    """A tick's label; what is cut keeps its place in the table, so that no two are one."""
    if len(name) <= MOST_LABEL_CHARS:
        return label(name)
    return label(f"{name[:MOST_LABEL_CHARS]}… ({place})")


def key_of(group: Slice) -> str:
    """A group's values in one line."""
    return ", ".join("not known" if value is None else quoted(value) for value in group.key.values())


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
