"""Small pieces of text: safe strings, durations, numbers, shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from dashboards.times import beyond, plain
from dashboards.visible import visible

NO_DATA: Final = "-"
MOST_WHOLE: Final = 10**9
"""What is larger is written in powers of ten in a column, beside which others must fit."""


def shown(text: str, *, ascii_only: bool) -> str:
    """``text`` made safe, and in ASCII where the console has no more."""
    found = visible(text)
    return found.encode("ascii", "backslashreplace").decode() if ascii_only else found


def fit(text: str, width: int, *, ascii_only: bool = False) -> str:
    """``text`` made safe, cut to ``width`` cells (with an ellipsis) and no wider."""
    whole = shown(text, ascii_only=ascii_only)
    if cell_len(whole) <= width:
        return whole
    mark = ".." if ascii_only else "…"
    return set_cell_size(whole, max(width - len(mark), 0)) + mark[: max(width, 0)]


def is_ascii(console: Console) -> bool:
    """Whether ``console`` can show ASCII alone."""
    return not console.encoding.lower().startswith("utf")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time for a column."""

    name: str
    ns: int


MS: Final = Unit("ms", 1_000_000)
SECONDS: Final = Unit("s", 1_000_000_000)
_TABLE_SECONDS_FROM_NS: Final = 100 * SECONDS.ns


def unit_for(values_ns: Iterable[float | None]) -> Unit:
    """Seconds for times that reach 100 s, else milliseconds: at most five digits of either."""
    reach = max((value or 0 for value in values_ns), default=0)
    return SECONDS if reach >= _TABLE_SECONDS_FROM_NS else MS


def in_unit(ns: float | None, unit: Unit) -> str:
    """``ns`` in ``unit``, three digits or more; a small time is never shown as 0.

    At most seven cells whatever ``ns`` is, and one for a sign, or the columns beside it would have
    none: from a million on in powers of ten.
    """
    if ns is None:
        return NO_DATA
    if ns < 0:
        return f"-{in_unit(-ns, unit)}"
    value = ns / unit.ns
    if value == 0:
        return "0"
    if value < 0.0001:
        return "<0.0001"
    if value >= 999_999.5:
        return f"{value:.{1 if value >= 9.5e99 else 2}g}"
    for least, digits in ((99.95, 0), (9.995, 1), (0.9995, 2), (0.09995, 3)):
        if value >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.4f}"


def duration(ns: float | None) -> str:
    """``ns`` with its own unit, for running text."""
    if ns is None:
        return "no data"
    unit = SECONDS if ns >= SECONDS.ns else MS
    whole = ns >= 1_000_000 * SECONDS.ns
    return f"{plain(ns / unit.ns) if whole else in_unit(ns, unit)} {unit.name}"


def exact_ms(ns: int) -> str:
    """``ns`` in milliseconds with three decimals, for aligned columns."""
    return decimals(ns / MS.ns, 3)


def decimals(value: float, digits: int, sign: str = "") -> str:
    """``value`` with ``digits`` decimals, in powers of ten where it would be long.

    ``sign="+z"`` gives every value but 0 its sign.
    """
    if abs(value) >= MOST_WHOLE:
        return f"{value:{sign[:1]}.3g}"
    return f"{value:{sign},.{digits}f}"


def rate(value: float | None) -> str:
    """A rate with three digits, or what says there is none."""
    if value is None:
        return "no data"
    if value >= MOST_WHOLE:
        return beyond(value)
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3g}"


def number(value: int | None) -> str:
    """A count: whole up to a million, then in millions, at last in powers of ten."""
    if value is None:
        return NO_DATA
    if value >= MOST_WHOLE:
        return beyond(value)
    return f"{value:,}" if value < 1_000_000 else f"{value / 1e6:.2f}M"


def apportion(shares: Sequence[float], places: int) -> list[int]:
    """``places`` dealt out by ``shares`` so that they add up (largest remainder first).

    ``shares`` that do not add up to 1 are rounded one by one instead.
    """
    if abs(sum(shares) - 1) > 1e-6:
        return [round(share * places) for share in shares]
    dealt = [int(share * places) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: dealt[i] - shares[i] * places)
    for i in order[: places - sum(dealt)]:
        dealt[i] += 1
    return dealt


def percents(shares: Sequence[float | None]) -> list[str]:
    """Shares as percent with one decimal, which add up to 100.0 when the shares do to 1.

    What is not 0 or not all is never told as that: ``<0.1`` and ``>99.9``.
    """
    if any(share is None for share in shares):
        return [NO_DATA] * len(shares)
    whole = [share or 0.0 for share in shares]
    return [_tenths(*pair) for pair in zip(whole, apportion(whole, 1000), strict=True)]


def _tenths(share: float, tenths: int) -> str:
    if tenths == 0 and share > 0:
        return "<0.1"
    return ">99.9" if tenths == 1000 and share < 1 else f"{tenths / 10:.1f}"
