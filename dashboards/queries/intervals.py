"""95 % intervals of percentiles, from the order statistics of the values themselves.

Of ``n`` independent values the number at or below the true ``p``-quantile is binomial
``B(n, p)``, whatever the distribution. So the true quantile lies between the values of
rank ``l`` and ``u`` with probability ``P(l <= B < u)``. The ranks are
``l = floor(n p - z s)`` and ``u = ceil(n p + z s) + 1`` with ``s = sqrt(n p (1 - p))``
and ``z = 1.96``; a rank outside 1..n is a bound that the data does not have (null).
A test works out the exact coverage of these ranks: at least 95 %.
(W. J. Conover, *Practical Nonparametric Statistics*, 1999, section 3.2.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dashboards.models.report import Interval
from dashboards.queries.base import Row
from dashboards.queries.measures import LEVEL_NAMES, LEVELS, QUANTITIES, Quantity

MOST_VALUES: Final = 100_000
"""A quantity with more values gets no interval: it would be narrow, and takes a sort of all."""
Z_RANKS: Final = 1.96
WITH_INTERVALS: Final = tuple(one for one in QUANTITIES if not one.gaps)
"""Not the gaps between tokens: those of one request depend on each other."""


def worth(row: Row) -> list[Quantity]:
    """The quantities of a row of aggregates whose intervals are worked out."""
    return [one for one in WITH_INTERVALS if 0 < int(row[f"n_{one.name}"]) <= MOST_VALUES]


def inner_columns(of: Sequence[Quantity]) -> list[str]:
    """The sorted values of each quantity, as arrays ``s_NAME``."""
    return [
        f"arraySort(groupArrayIf(toFloat64(assumeNotNull({one.value})), {one.has})) AS s_{one.name}"
        for one in of
    ]


def outer_columns(of: Sequence[Quantity]) -> list[str]:
    """The values at the ranks of each level: ``low_NAME`` and ``high_NAME``."""
    return [column for one in of for column in _picks(f"s_{one.name}", one.name)]


def _picks(values: str, name: str) -> list[str]:
    lows = ", ".join(_low(values, p) for p in LEVELS)
    highs = ", ".join(_high(values, p) for p in LEVELS)
    return [f"[{lows}] AS low_{name}", f"[{highs}] AS high_{name}"]


def _low(values: str, p: float) -> str:
    n = f"length({values})"
    rank = f"toInt64(floor({n} * {p} - {Z_RANKS} * sqrt({n} * {p * (1 - p)})))"
    return f"if({rank} >= 1, arrayElement({values}, toUInt64(greatest({rank}, 1))), NULL)"


def _high(values: str, p: float) -> str:
    n = f"length({values})"
    rank = f"toInt64(ceil({n} * {p} + {Z_RANKS} * sqrt({n} * {p * (1 - p)})) + 1)"
    return (
        f"if({n} > 0 AND {rank} <= {n}, "
        f"arrayElement({values}, toUInt64(least({rank}, toInt64({n} + 1)))), NULL)"
    )


def read_intervals(row: Row | None, quantity: Quantity) -> tuple[Interval, ...]:
    """The interval of each percentile; empty where none was worked out."""
    if row is None or f"low_{quantity.name}" not in row:
        return ()
    lows, highs = row[f"low_{quantity.name}"], row[f"high_{quantity.name}"]
    return tuple(
        Interval(percentile=name, low_ns=_whole(low), high_ns=_whole(high))
        for name, low, high in zip(LEVEL_NAMES, lows, highs, strict=True)
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


SENTENCE: Final = (
    "Intervals of percentiles are of 95 %, from order statistics (binomial), for requests that do "
    f"not depend on each other; none for ITL, and none of more than {MOST_VALUES:,} values."
)
"""What the report says of its intervals."""
