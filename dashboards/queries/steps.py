"""How the chosen requests lie in time: counts by steps, out of the roll-ups where they can tell."""

# ruff: noqa: S608  only our own words and numbers are put together here; values are bound
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.queries import rollups
from dashboards.queries.base import QueryLimits, QueryStore, run

STEPS: Final = 2000
ROLLED_FROM_NS: Final = 12 * rollups.HOUR_NS
"""In a window this long a minute is a short step."""
_ENDS_SQL: Final = """\
SELECT count() AS n, toInt64(toUnixTimestamp64Nano(min(Timestamp))) AS first,
  toInt64(toUnixTimestamp64Nano(max(Timestamp))) AS last FROM {database:Identifier}.requests"""
_STEP_SQL: Final = (
    "toUInt16(intDiv(toUnixTimestamp64Nano(Timestamp) - {begin:Int64}, {width:Int64})) AS step"
)


@dataclass(frozen=True, slots=True)
class Slice:
    """``[begin, end)`` in ns of the epoch, and about how many requests began in it."""

    begin: int
    end: int
    rows: float


@dataclass(frozen=True, slots=True)
class Stepped:
    """The chosen requests by steps of one length, without those that have none.

    ``around`` is about how many requests, chosen or not, began in that time. ``sums`` holds the
    columns that were asked for, over all steps, where the requests themselves were read.
    """

    steps: list[Slice]
    around: int
    sums: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return round(sum(one.rows for one in self.steps))


def counted(
    store: QueryStore, filters: Filters, limits: QueryLimits, columns: Sequence[str] = ()
) -> Stepped:
    """``columns`` are sums over requests, as SQL with a name; read only where there is a scan.

    Raises:
        UnavailableError: the store gave no answer.
    """
    ends = run(store, _ENDS_SQL, {}, limits)[0]
    if not ends["n"]:
        return Stepped([], 0)
    begin = max(int(ends["first"]), filters.since_unix_ns or 0)
    end = min(int(ends["last"]) + 1, filters.until_unix_ns or int(ends["last"]) + 1)
    if begin >= end:
        return Stepped([], 0)
    around = int(ends["n"]) * (end - begin) // (int(ends["last"]) + 1 - int(ends["first"]))
    if end - begin >= ROLLED_FROM_NS and rollups.allowed(filters):
        return Stepped(_rolled(store, filters, begin, end, limits), around)
    steps, sums = by_width(
        store, where(filters), (begin, end), -(-(end - begin) // STEPS), limits, columns
    )
    return Stepped(steps, around, sums)


def by_width(
    store: QueryStore,
    picked: Where,
    span: tuple[int, int],
    width: int,
    limits: QueryLimits,
    columns: Sequence[str] = (),
) -> tuple[list[Slice], dict[str, int]]:
    """Out of the requests themselves; and the sums of ``columns``."""
    begin, end = span
    params = {**picked.params, "begin": begin, "width": width}
    figures = ", ".join((_STEP_SQL, "count() AS n", *columns))
    sql = (
        f"SELECT {figures} FROM {{database:Identifier}}.requests "
        f"WHERE {picked.sql} GROUP BY step ORDER BY step"
    )
    rows = run(store, sql, params, limits)
    steps = [
        Slice(at, min(end, at + width), float(row["n"]))
        for at, row in ((begin + int(row["step"]) * width, row) for row in rows)
    ]
    names = [name for name in (rows[0] if rows else ()) if name not in {"step", "n"}]
    return steps, {name: sum(int(row[name] or 0) for row in rows) for name in names}


def _rolled(
    store: QueryStore, filters: Filters, begin: int, end: int, limits: QueryLimits
) -> list[Slice]:
    """Out of the sketches, which count every request; steps of whole minutes."""
    first = begin // rollups.MINUTE_NS * rollups.MINUTE_NS
    minutes = -(-(end - first) // (STEPS * rollups.MINUTE_NS))
    width = minutes * rollups.MINUTE_NS
    window = rollups.cut(begin, end, hours=width >= rollups.HOUR_NS)
    source = rollups.parts(filters, (), window, ("e2e",))
    sql = (
        f"SELECT toUInt16(intDiv(toInt64(toUnixTimestamp(Began)) * 1000000000 - {first}, {width})) "
        f"AS step, sum(N) AS n FROM ({source}) GROUP BY step ORDER BY step"
    )
    inside = filters.model_copy(update={"since_unix_ns": begin, "until_unix_ns": end})
    found = []
    for row in run(store, sql, where(inside).params, limits):
        at = first + int(row["step"]) * width
        found.append(Slice(max(begin, at), min(end, at + width), float(row["n"])))
    return found
