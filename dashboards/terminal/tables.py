"""A plain table of texts, and the lines under it, for the analyses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from dashboards.terminal.figures import plain_table
from dashboards.terminal.text import fit, is_ascii, shown
from dashboards.visible import quoted

NAME_CELLS = 32


def print_table(
    console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1
) -> None:
    """Print ``rows`` under ``heads``; the first ``names`` columns are texts, the others figures."""
    ascii_only = is_ascii(console)
    table = plain_table(console.width)
    for i, head in enumerate(heads):
        told = fit(head, NAME_CELLS + 12, ascii_only=ascii_only)
        table.add_column(Text(told), justify="left" if i < names else "right", no_wrap=True)
    for row in rows:
        cells = [
            fit(cell, NAME_CELLS, ascii_only=ascii_only) if i < names else cell
            for i, cell in enumerate(row)
        ]
        table.add_row(*map(Text, cells))
    console.print(table)


def print_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print sentences, one a line, with nothing in them that the terminal could obey."""
    ascii_only = is_ascii(console)
    for line in lines:
        console.print(Text(shown(line, ascii_only=ascii_only), style))


def label_of(key: dict[str, str | None]) -> str:
    """A group's name: its values, ``all`` for the whole."""
    return ", ".join("(unknown)" if v is None else quoted(v) for v in key.values()) or "all"
