"""The console that results are printed on."""

from __future__ import annotations

import os
from typing import IO, Final

from rich.console import Console

from dashboards.terminal.figures import NARROWEST

PIPED_WIDTH: Final = 100


def make_console(file: IO[str], width: int | None = None) -> Console:
    """A console on ``file``: colours only on a terminal, ``PIPED_WIDTH`` columns off one.

    ``width`` or the environment's COLUMNS override the width. One narrower than the tables
    breaks their lines: rich would leave out what stands at their right, without a word.
    """
    if width is None and not file.isatty() and "COLUMNS" not in os.environ:
        width = PIPED_WIDTH
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console
