"""The table of percentiles that the report and its groups share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from dashboards.models.report import Distribution
from dashboards.queries.measures import LEVEL_NAMES
from dashboards.terminal.text import in_unit, number, unit_for

TIMES: Final = (*LEVEL_NAMES, "max")
NARROWEST: Final = 80
WIDE: Final = 100
OTHER_CELLS: Final = 67
"""All columns but the first, with their gaps, at their widest."""
NAME_CELLS: Final = 12


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One line: its name, percentiles, and the two shares as text (``None`` leaves them out)."""

    name: Text
    figures: Distribution
    shares: tuple[str, str] | None = None
    rule_after: bool = False


def figure_table(title: str, rows: Sequence[FigureRow], width: int) -> Table:
    """``rows`` under ``title`` (the first column's head), within ``width`` >= 80 columns.

    All time columns have one unit, named in their heads, so that a row reads across.
    """
    table = plain_table(width)
    first = name_cells(width)
    table.add_column(Text(title), no_wrap=True, min_width=NAME_CELLS, max_width=first)
    table.add_column(Text("n"), justify="right", no_wrap=True)
    table.add_column(Text("no\ndata"), justify="right", no_wrap=True)
    unit = unit_for(row.figures.max_ns for row in rows)
    for name in TIMES:
        table.add_column(Text(f"{name}\n{unit.name}"), justify="right", no_wrap=True, min_width=7)
    shared = any(row.shares for row in rows)
    if shared:
        table.add_column(Text("share\n%"), justify="right", no_wrap=True)
        table.add_column(Text("slow\n5 %"), justify="right", no_wrap=True)
    for row in rows:
        cells = [row.name, Text(number(row.figures.n)), Text(_missing(row.figures))]
        for name in TIMES:
            value = in_unit(time_of(row.figures, name), unit)
            mark = "~" if name in row.figures.weak else ""
            cells.append(Text(mark + value, "" if row.figures.n else "dim"))
        cells += [Text(text) for text in row.shares or ("", "")] if shared else []
        table.add_row(*cells, end_section=row.rule_after)
    return table


def name_cells(width: int) -> int:
    """How wide the first column of :func:`figure_table` may be."""
    return max(NAME_CELLS, width - OTHER_CELLS - (9 if width >= WIDE else 0))


def plain_table(width: int) -> Table:
    """A table with a rule under its head and nothing else; closer set on narrow consoles."""
    return Table(
        box=SIMPLE_HEAD,
        padding=(0, int(width >= WIDE), 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )


def time_of(figures: Distribution, name: str) -> int | None:
    """The figure ``p50`` .. ``max`` in ns."""
    found: int | None = getattr(figures, f"{name}_ns")
    return found


def _missing(figures: Distribution) -> str:
    return number(figures.no_data) if figures.no_data else ""
