"""The tables of a report's groups: one of what went through, then one a quantity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dashboards.models.report import Report, Slice
from dashboards.terminal.figures import (
    FigureRow,
    figure_table,
    name_cells,
    plain_table,
)
from dashboards.terminal.stage_style import colour
from dashboards.terminal.text import NO_DATA, fit, number, percents, rate, shown
from dashboards.visible import quoted

LEAST_SHARE: Final = 0.01
"""A stage below this share of the time, in every group, gets no table of its own."""
_MEASURES: Final = {"e2e": "E2E", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL (gaps)"}
_NONE_LABELS: Final = {"error_type": "(no error)", "finish_reason": "(none)"}
_LABEL_CELLS: Final = 33
_ACTIVITY_CELLS: Final = 60
_MOST_CELLS: Final = 160
"""Of a name that is told in full, on several lines: longer ones would push the figures away."""


def group_tables(report: Report, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """The tables for ``--by``, nothing when it was not asked for."""
    if not report.by:
        return
    cells = min(_LABEL_CELLS, name_cells(width))
    whole = [fit(_label(one), _MOST_CELLS, ascii_only=ascii_only) for one in report.groups]
    if any(cell_len(label) > cells for label in whole):  # cut ones may look alike
        whole = [f"{i}:{label}" for i, label in enumerate(whole, start=1)]
    by = f"by {', '.join(report.by)}"
    yield _activity_table(report, shown(by, ascii_only=ascii_only), whole, width)
    title = fit(by, cells, ascii_only=ascii_only)
    labels = [fit(label, cells, ascii_only=ascii_only) for label in whole]
    for name, head in _MEASURES.items():
        if any(one.measure(name).n for one in report.groups):
            rows = [
                FigureRow(Text(label), one.measure(name))
                for label, one in zip(labels, report.groups, strict=True)
            ]
            yield figure_table(f"{head}\n{title}", rows, width)
    yield from _stage_tables(report, title, labels, width)
    if report.groups_left_out.groups:
        left = report.groups_left_out
        yield Text(
            f"smaller groups left out: {number(left.groups)}, with "
            f"{number(left.requests)} request{'s' * (left.requests != 1)}; filter, or group by less",
            "dim",
        )


def _stage_tables(
    report: Report, title: str, labels: list[str], width: int
) -> Iterator[RenderableType]:
    small: list[str] = []
    for whole in report.overall.stages:
        figures = [one.stage(whole.stage) for one in report.groups]
        if whole.part_of is not None or not whole.sum_ns:
            continue
        if max((one.share or 0.0 for one in figures), default=0.0) < LEAST_SHARE:
            small.append(whole.stage)
            continue
        rows = [
            FigureRow(
                Text(label),
                one,
                (percents([one.share])[0], percents([one.slowest_share])[0]),
            )
            for label, one in zip(labels, figures, strict=True)
        ]
        yield figure_table(f"{whole.stage}\n{title}", rows, width)
    if small:
        yield Text(
            f"below {LEAST_SHARE:.0%} of the time in every group, and so without a table: "
            f"{', '.join(small)}",
            "dim",
        )


def _activity_table(report: Report, title: str, labels: list[str], width: int) -> Table:
    table = plain_table(width)
    table.add_column(Text(title), overflow="fold", max_width=width - _ACTIVITY_CELLS)
    for head in (
        *("n", "not\nok", "requests\n/s", "output\ntokens/s", "mean\nconc.", "peak\nconc."),
        "longest stage\n% of time",
    ):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for label, one in zip(labels, report.groups, strict=True):
        activity = one.activity
        table.add_row(
            Text(label),
            Text(number(one.counts.total)),
            Text(number(one.counts.total - one.counts.ok)),
            *(
                Text("-" if value is None else rate(value))
                for value in (
                    activity.requests_per_s,
                    activity.output_tokens_per_s,
                    activity.mean_concurrency,
                )
            ),
            Text(number(activity.peak_concurrency)),
            _longest(one),
        )
    return table


def _longest(slice_: Slice) -> Text:
    stages = [one for one in slice_.stages if one.part_of is None]
    first = max(stages, key=lambda one: one.sum_ns)
    if not first.sum_ns:
        return Text(NO_DATA)
    return Text(f"{first.stage} {percents([first.share])[0]}", colour(first.stage))


def _label(slice_: Slice) -> str:
    return ", ".join(
        _NONE_LABELS.get(name, "(unknown)") if value is None else quoted(value)
        for name, value in slice_.key.items()
    )
