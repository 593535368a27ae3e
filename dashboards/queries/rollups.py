"""Reading the sketches by minute and by hour in place of many requests.

A window is put together from whole hours of ``requests_1h`` and, at its ends, whole minutes
of ``requests_1m``; it begins and ends on a minute, which the answer says. Sketches merge,
so percentiles of any window are those of a t-digest over its requests, never means of
percentiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dashboards.filters import Choice, Filters, Where, where
from dashboards.queries.base import QueryLimits, QueryStore, run
from dashboards.queries.dimensions import Dimension, dimensions
from dashboards.queries.measures import LEVELS, MEASURES, STAGES, Quantity
from dashboards.times import NS_PER_S

EXACT_UP_TO: Final = 200_000
"""Up to this many requests are read themselves, and their percentiles are exact."""
MINUTE_NS: Final = 60 * NS_PER_S
HOUR_NS: Final = 3600 * NS_PER_S

_COLUMNS: Final = {"e2e": "E2E", "ttft": "Ttft", "first_answer": "FirstAnswer", "tpot": "Tpot"}
KEPT: Final = tuple(one for one in (*STAGES, *MEASURES) if one in STAGES or one.name in _COLUMNS)
"""The quantities that have a sketch."""
_FLAGS: Final = {"warm": "Warm", "cached": "Cached"}
_KEYS: Final = frozenset({"model", "route", "status", "stream", *_FLAGS})
_COUNT_SQL: Final = "SELECT count() AS total FROM {database:Identifier}.requests WHERE"
_HOURS_SQL: Final = "SELECT Hour AS At, * EXCEPT (Hour) FROM {database:Identifier}.requests_1h"
_MINUTES_SQL: Final = (
    "SELECT Minute AS At, * EXCEPT (Minute) FROM {database:Identifier}.requests_1m"
)
_LEVELS: Final = ", ".join(map(str, LEVELS))


@dataclass(frozen=True, slots=True)
class Window:
    """``[begin, end)`` on whole minutes; hours between ``first`` and ``last`` are whole."""

    begin: int
    first: int
    last: int
    end: int

    @property
    def params(self) -> dict[str, object]:
        return {f"w_{name}": getattr(self, name) // NS_PER_S for name in self.__slots__}


def window(begin_ns: int, end_ns: int) -> Window:
    """The minutes that touch ``[begin_ns, end_ns)``, and the whole hours among them."""
    begin, end = begin_ns // MINUTE_NS * MINUTE_NS, -(-end_ns // MINUTE_NS) * MINUTE_NS
    first, last = -(-begin // HOUR_NS) * HOUR_NS, end // HOUR_NS * HOUR_NS
    if first >= last:
        return Window(begin, end, end, end)
    return Window(begin, first, last, end)


def total(store: QueryStore, picked: Where, limits: QueryLimits) -> int:
    """How many requests are chosen."""
    sql = f"{_COUNT_SQL} {picked.sql}"
    return int(run(store, sql, picked.params, limits)[0]["total"])


def answers(filters: Filters, by: tuple[str, ...] = ()) -> bool:
    """Whether the roll-ups hold what these filters and dimensions ask for."""
    return not filters.tags and filters.run is None and set(by) <= _KEYS


def rolled_where(filters: Filters) -> Where:
    """The condition of ``filters``, but for its times, on a row of a roll-up."""
    timeless = filters.model_copy(
        update={
            "since_unix_ns": None,
            "until_unix_ns": None,
            "warm": "include",
            "cached": "include",
        }
    )
    found = where(timeless)
    marks = [_mark("Warm", filters.warm), _mark("Cached", filters.cached)]
    return Where(" AND ".join([found.sql, *(one for one in marks if one)]), found.params)


def _mark(column: str, choice: Choice) -> str:
    return {"include": "", "exclude": f"{column} != 1", "only": f"{column} = 1"}[choice]


def rolled_dimensions(names: tuple[str, ...]) -> tuple[Dimension, ...]:
    """As :func:`dashboards.queries.dimensions.dimensions`, over a row of a roll-up."""
    return tuple(
        _flag(one.name, _FLAGS[one.name]) if one.name in _FLAGS else one
        for one in dimensions(names)
    )


def _flag(name: str, column: str) -> Dimension:
    return Dimension(name, f"multiIf({column} = -1, '', {column} = 1, 'vyes', 'vno')")


def rows(condition: str) -> str:
    """A FROM source: the roll-up rows of a :class:`Window`, their time as ``At`` (DateTime)."""
    hours = (
        "Hour >= toDateTime({w_first:Int64}, 'UTC') AND Hour < toDateTime({w_last:Int64}, 'UTC')"
    )
    minutes = (
        "Minute >= toDateTime({w_begin:Int64}, 'UTC') AND Minute < toDateTime({w_end:Int64}, 'UTC') "
        "AND (Minute < toDateTime({w_first:Int64}, 'UTC') OR Minute >= toDateTime({w_last:Int64}, 'UTC'))"
    )
    parts = ((_HOURS_SQL, hours), (_MINUTES_SQL, minutes))
    whole = " UNION ALL ".join(
        f"{select} WHERE {bounds} AND {condition}" for select, bounds in parts
    )
    return f"({whole})"


def merged(quantity: Quantity) -> list[str]:
    """``n_``, ``q_``, ``max_`` and ``sum_`` of one quantity, out of its sketches."""
    name, column = quantity.name, _COLUMNS.get(quantity.name) or quantity.name.capitalize()
    return [
        f"sum({column}N) AS n_{name}",
        f"quantilesTDigestMerge({_LEVELS})({column}) AS q_{name}",
        f"max({column}Max) AS max_{name}",
        f"sum({column}Sum) AS sum_{name}",
    ]


def read(quantity: Quantity, *, exact: bool) -> list[str]:
    """The same columns out of the requests themselves."""
    name, value, has = quantity.name, quantity.value, quantity.has
    digest = "quantilesExactInclusiveIf" if exact else "quantilesTDigestIf"
    return [
        f"countIf({has}) AS n_{name}",
        f"{digest}({_LEVELS})(assumeNotNull({value}), {has}) AS q_{name}",
        f"maxIf({value}, {has}) AS max_{name}",
        f"sumIf({value}, {has}) AS sum_{name}",
    ]
