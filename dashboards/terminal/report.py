"""The report on a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dashboards.models.report import Interval, MeasureFigures, Report, Slice, StageFigures
from dashboards.queries.measures import LEVEL_NAMES
from dashboards.terminal.facts import facts
from dashboards.terminal.figures import FigureRow, figure_table, plain_table
from dashboards.terminal.groups import group_tables
from dashboards.terminal.stage_style import colour, legend, stage_bar
from dashboards.terminal.text import (
    NO_DATA,
    Unit,
    in_unit,
    is_ascii,
    percents,
    shown,
    unit_for,
)

MEASURE_NAMES: Final = {
    "e2e": "E2E",
    "ttft": "TTFT",
    "first_chunk": "first chunk",
    "first_answer": "first answer",
    "tpot": "TPOT",
    "itl": "ITL (gaps)",
    "itl_chunk": "chunk gaps",
}
_MEASURE_ORDER: Final = ("ttft", "first_chunk", "first_answer", "tpot", "itl", "itl_chunk", "e2e")
_WEAK_NOTE: Final = (
    "~ fewer values than this percentile needs (p99: 100, p95: 20, p90: 10): about the maximum"
)


def render_report(report: Report, console: Console) -> None:
    """Print ``report``: facts, figures, shares, groups, assumptions, and how to read it."""
    width = console.width
    ascii_only = is_ascii(console)
    blank = Text("")
    console.print(facts(report, ascii_only=ascii_only), blank, sep="\n")
    if report.overall.counts.total:
        console.print(_figures(report.overall, width), blank, sep="\n")
        console.print(_shares(report.overall, width), blank, sep="\n")
        if (bounds := _intervals(report.overall, width, ascii_only=ascii_only)) is not None:
            console.print(bounds, blank, sep="\n")
        for table in group_tables(report, width, ascii_only=ascii_only):
            console.print(table, blank, sep="\n")
        if _any_weak(report):
            console.print(Text(_WEAK_NOTE, "dim"))
    console.print(_bullets(report.assumptions, ascii_only=ascii_only), blank, sep="\n")
    reading = " ".join(shown(line, ascii_only=ascii_only) for line in report.reading)
    console.print(Text(reading, "bold"))


def _bullets(lines: tuple[str, ...], *, ascii_only: bool) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(Text("*", "dim"), Text(shown(line, ascii_only=ascii_only), "dim"))
    return table


def _figures(slice_: Slice, width: int) -> RenderableType:
    measures = [slice_.measure(name) for name in _MEASURE_ORDER]
    shown = [one for one in measures if one.n or one.measure != "itl_chunk"]
    rows = [*_stage_rows(slice_.stages), *(_measure_row(one) for one in shown)]
    return figure_table("stage", rows, width)


def _stage_rows(stages: tuple[StageFigures, ...]) -> Iterator[FigureRow]:
    whole = [one for one in stages if one.part_of is None]
    all_shares = dict(zip(whole, percents([one.share for one in whole]), strict=True))
    slow_shares = dict(zip(whole, percents([one.slowest_share for one in whole]), strict=True))
    for i, one in enumerate(stages):
        if one.part_of is None:
            name = Text(one.stage, colour(one.stage))
            shares = (all_shares[one], slow_shares[one])
        else:
            name = Text(f"- {one.stage}", "dim")
            shares = (percents([one.share])[0], percents([one.slowest_share])[0])
        yield FigureRow(name, one, shares, rule_after=i == len(stages) - 1)


def _measure_row(one: MeasureFigures) -> FigureRow:
    return FigureRow(Text(MEASURE_NAMES[one.measure]), one)


def _shares(slice_: Slice, width: int) -> RenderableType:
    stages = [one for one in slice_.stages if one.part_of is None and one.share is not None]
    lines: list[Text] = []
    for name, shares in (
        ("all", [(one.stage, one.share or 0.0) for one in stages]),
        ("slowest 5 %", [(one.stage, one.slowest_share or 0.0) for one in stages]),
    ):
        line = Text(f"{name:<12}")
        line.append_text(stage_bar(shares, min(width, 120) - 13))
        lines.append(line)
    held = [one.stage for one in stages if one.sum_ns]
    return Group(*lines, Text(" " * 12) + legend(held))


def _intervals(slice_: Slice, width: int, *, ascii_only: bool) -> Table | None:
    """The 95 % intervals of TTFT, TPOT, E2E and the stages; None where none was worked out."""
    measures = [slice_.measure(name) for name in ("ttft", "tpot", "e2e")]
    stages = [one for one in slice_.stages if one.part_of is None and one.sum_ns]
    named: list[tuple[str, StageFigures | MeasureFigures]] = [(one.stage, one) for one in stages]
    named += [(MEASURE_NAMES[one.measure], one) for one in measures if one.n]
    if not any(one.intervals for _, one in named):
        return None
    unit = unit_for(one.max_ns for _, one in named)
    table = plain_table(width)
    table.add_column(Text(f"95 % {unit.name}"), no_wrap=True)
    for name in LEVEL_NAMES:
        table.add_column(Text(name), justify="right", no_wrap=True)
    dash = "-" if ascii_only else "–"
    for label, one in named:
        bounds = [one.interval(name) for name in LEVEL_NAMES]
        table.add_row(Text(label), *(Text(_bounds(b, unit, dash)) for b in bounds))
    return table


def _bounds(one: Interval | None, unit: Unit, dash: str) -> str:
    """``low–high``; an open side is a question mark, none at all a dash."""
    if one is None or (one.low_ns is None and one.high_ns is None):
        return NO_DATA
    low, high = (None if ns is None else in_unit(ns, unit) for ns in (one.low_ns, one.high_ns))
    return f"{low or '?'} {dash} {high or '?'}"


def _any_weak(report: Report) -> bool:
    return any(
        one.weak
        for slice_ in (report.overall, *report.groups)
        for one in (*slice_.stages, *slice_.measures)
    )
