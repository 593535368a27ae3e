"""Where steps of time lie on the report's plots, and how long of each the window holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboards.models.series import Series, Step
from dashboards.times import NS_PER_S, to_iso

MOST_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Laid:
    """The steps from the first to the last with requests; ``None`` where one has none."""

    series: Series
    first_ns: int
    steps: tuple[Step | None, ...]

    @property
    def middles(self) -> list[str]:
        """The middle of what the window holds of each step."""
        return [to_iso(sum(self._part(n)) // 2) for n in range(len(self.steps))]

    @property
    def edges(self) -> list[str]:
        """The steps' own bounds, one more than there are steps."""
        return [to_iso(self._start(n)) for n in range(len(self.steps) + 1)]

    @property
    def widths_ms(self) -> list[float]:
        """Of a bar for each step: what the window holds of it, less a gap."""
        return [self.seconds(n) * 960 for n in range(len(self.steps))]

    def seconds(self, place: int) -> float:
        """How long of step ``place`` lies in the window."""
        begin, end = self._part(place)
        return (end - begin) / NS_PER_S

    def cut(self, place: int) -> bool:
        """Whether the window holds a part of step ``place`` alone."""
        return self.seconds(place) < 0.99 * self.series.step_ns / NS_PER_S

    def values(self, of: Callable[[Step], float | None]) -> list[float | None]:
        """``of`` each step; null where there is no request, so that no line is drawn across."""
        return [None if one is None else of(one) for one in self.steps]

    def place(self, start_ns: int) -> int:
        """The place of the step that begins at ``start_ns``."""
        return (start_ns - self.first_ns) // self.series.step_ns

    def _start(self, place: int) -> int:
        return self.first_ns + place * self.series.step_ns

    def _part(self, place: int) -> tuple[int, int]:
        begin, end = self._start(place), self._start(place + 1)
        low, high = max(begin, self.series.from_unix_ns), min(end, self.series.to_unix_ns)
        return (low, high) if low < high else (begin, end)


def laid(series: Series) -> Laid:
    """The steps of ``series`` in a row."""
    starts = [one.start_unix_ns for one in series.steps]
    if not starts:
        return Laid(series, 0, ())
    steps: list[Step | None] = [None] * ((max(starts) - min(starts)) // series.step_ns + 1)
    for one in series.steps:
        steps[(one.start_unix_ns - min(starts)) // series.step_ns] = one
    return Laid(series, min(starts), tuple(steps))


def counts(line: Laid, levels: Sequence[int]) -> list[list[int | None]]:
    """The heat map's rows, from the lowest level to the highest; ``levels`` are those of its cells."""
    low = min(levels)
    found: list[list[int | None]] = [
        [None] * len(line.steps) for _ in range(max(levels) - low + 1)
    ]
    for cell, level in zip(line.series.cells, levels, strict=True):
        found[level - low][line.place(cell.start_unix_ns)] = cell.n
    return found


def log_axis(edges: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis from the first to the last of ``edges`` with labels that do not touch.

    One, two and five of each power of ten; the powers alone where those are many, and the ends
    where they are fewer than two. Plotly's own labels of every digit stand in each other. The
    page has the same in ``charts.js``.
    """
    low, high = edges[0], edges[-1]
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1, 2, 5), (1,)):
        found = [v for p in powers for d in digits if low <= (v := float(f"{d}e{p}")) <= high]
        if len(found) <= MOST_TICKS:
            break
    if len(found) < 2:
        found = [float(f"{end:.2g}") for end in (low, high)]
    return {"type": "log", "tickmode": "array", "tickvals": found, "ticktext": [f"{v:g}" for v in found]}
