"""Percentiles from the sketches by minute and hour: the same question, without the requests.

Sketches are merged, never percentiles. What lies between a bound of the window and the
next whole minute is read from the requests, so the window is the one that was asked for.
"""

# ruff: noqa: S608  only our own words and numbers are put together here; values are bound
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dashboards.errors import BadValueError
from dashboards.filters import Filters, Where, where
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.measures import LEVELS, MEASURES, STAGES, Quantity
from tracer.stages import Stage

MINUTE_NS: Final = 60 * 10**9
HOUR_NS: Final = 3600 * 10**9
DAY_NS: Final = 24 * HOUR_NS
SLICED: Final = {
    "model": ("Model", "Model"),
    "route": ("Route", "Route"),
    "status": ("Status", "Status"),
    "stream": ("Stream", "Stream"),
    "warm": ("Warm", "multiIf(isNull(Warm), -1, Warm, 1, 0)"),
    "cached": ("Cached", "multiIf(isNull(CachedTokens), -1, CachedTokens > 0, 1, 0)"),
}
"""Dimensions that the sketches keep apart: their column there, and over ``requests``."""
_DAYS_SQL: Final = """\
SELECT day FROM (
  SELECT toInt64(toUnixTimestamp(toStartOfDay(Hour))) AS day, sum(N) AS hours, toUInt64(0) AS days
  FROM {database:Identifier}.requests_1h WHERE Quantity = 'e2e'
    AND Hour >= toDateTime({begin:Int64}, 'UTC') AND Hour < toDateTime({end:Int64}, 'UTC')
  GROUP BY day
  UNION ALL
  SELECT toInt64(toUnixTimestamp(Day)) AS day, toUInt64(0) AS hours, sum(N) AS days
  FROM {database:Identifier}.requests_1d WHERE Quantity = 'e2e'
    AND Day >= toDateTime({begin:Int64}, 'UTC') AND Day < toDateTime({end:Int64}, 'UTC')
  GROUP BY day
) GROUP BY day HAVING sum(hours) = sum(days) ORDER BY day"""
_NAMES: Final = ("e2e", "ttft", "first_answer", "tpot")
QUANTITIES: Final = (
    *(one for one in STAGES if one.name != Stage.UNATTRIBUTED),
    *(one for one in STAGES if one.name == Stage.UNATTRIBUTED),
    *(one for one in MEASURES if one.name in _NAMES),
)
INPUT_TOKENS: Final = Quantity("input_tokens", "InputTokens", "isNotNull(InputTokens)")
OUTPUT_TOKENS: Final = Quantity("output_tokens", "OutputTokens", "isNotNull(OutputTokens)")
Source = Literal["requests", "rollups"]
_LEVELS: Final = ", ".join(str(level) for level in LEVELS)


@dataclass(frozen=True, slots=True)
class StagePercentiles:
    """p50, p90, p95 and p99 of one quantity in one slice, in ns, over ``n`` requests that have it."""

    key: tuple[str, ...]
    quantity: str
    n: int
    sum_ns: int
    max_ns: int
    values_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """``[begin, end)`` cut into days, hours, minutes and what is left at both ends; ns of the epoch."""

    raw: tuple[tuple[int, int], ...]
    minutes: tuple[tuple[int, int], ...]
    hours: tuple[tuple[int, int], ...]
    days: tuple[tuple[int, int], ...] = ()


def allowed(filters: Filters, by: Sequence[str] = ()) -> bool:
    """Whether the sketches can answer: tags and runs they do not keep apart."""
    return not filters.tags and filters.run is None and all(name in SLICED for name in by)


def made_days(
    store: QueryStore, begin: int, end: int, limits: QueryLimits
) -> tuple[int, ...]:
    """The days in the window whose own sketches count what those of their hours count; ns.

    Raises:
        UnavailableError: the store gave no answer.
    """
    if end - begin < DAY_NS:
        return ()
    params = {"begin": begin // 10**9, "end": end // 10**9}
    rows = run(store, _DAYS_SQL, params, limits)
    return tuple(int(row["day"]) * 10**9 for row in rows)


def cut(begin: int, end: int, *, hours: bool = True, days: Sequence[int] = ()) -> Window:
    """Whole hours from the sketches by hour (where they may be), whole minutes from those by minute.

    ``days`` are the beginnings of days that have sketches of their own.
    """
    first, last = _up(begin, MINUTE_NS), end // MINUTE_NS * MINUTE_NS
    if first >= last:
        return Window(((begin, end),), (), ())
    raw = tuple((a, b) for a, b in ((begin, first), (last, end)) if a < b)
    early, late = _up(first, HOUR_NS), last // HOUR_NS * HOUR_NS
    if early >= late or not hours:
        return Window(raw, ((first, last),), ())
    minutes = tuple((a, b) for a, b in ((first, early), (late, last)) if a < b)
    whole = [at for at in sorted(days) if early <= at and at + DAY_NS <= late]
    ends = [early, *(at + DAY_NS for at in whole)]
    between = tuple(
        (a, b) for a, b in zip(ends, [*whole, late], strict=True) if a < b
    )
    return Window(raw, minutes, between, tuple((at, at + DAY_NS) for at in whole))


def _up(ns: int, step: int) -> int:
    return -(-ns // step) * step


def percentiles_by_stage(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    *,
    source: Source = "rollups",
    limits: QueryLimits | None = None,
) -> list[StagePercentiles]:
    """Each quantity in each slice that has it; ``filters`` must have both ends of the window.

    Raises:
        BadValueError: the sketches do not keep apart what was asked (:func:`allowed`).
        UnavailableError: the store gave no answer.
    """
    if filters.since_unix_ns is None or filters.until_unix_ns is None:
        raise BadValueError("percentiles need a since and an until")
    if not allowed(filters, by):
        raise BadValueError(f"the roll-ups know only {', '.join(SLICED)}: leave out tags and runs")
    chosen = where(filters)
    if source == "requests":
        sql = _exact(chosen, by)
    else:
        begin, end = filters.since_unix_ns, filters.until_unix_ns
        days = made_days(store, begin, end, limits or QueryLimits())
        sql = merged(filters, by, cut(begin, end, days=days))
    rows = run(store, sql, chosen.params, limits or QueryLimits())
    return [one for row in rows for one in _read(row, len(by))]


def sums(
    store: QueryStore, filters: Filters, names: Sequence[str], limits: QueryLimits
) -> dict[str, tuple[int, int]]:
    """How many requests have each quantity, and its sum; ``filters`` must have both ends.

    Raises:
        UnavailableError: the store gave no answer.
    """
    assert filters.since_unix_ns is not None
    assert filters.until_unix_ns is not None
    begin, end = filters.since_unix_ns, filters.until_unix_ns
    window = cut(begin, end, days=made_days(store, begin, end, limits))
    source = parts(filters, (), window, names)
    sql = f"SELECT Quantity, sum(N) AS n, sum(Sum) AS total FROM ({source}) GROUP BY Quantity"
    found = {row["Quantity"]: row for row in run(store, sql, where(filters).params, limits)}
    return {
        name: (int(found[name]["n"]), int(found[name]["total"])) if name in found else (0, 0)
        for name in names
    }


def merged(filters: Filters, by: Sequence[str], window: Window) -> str:
    """SQL over the sketches of ``window``: a row a slice and quantity."""
    keys = [f"k{i}" for i in range(len(by))]
    group = ", ".join(["Quantity", *keys])
    names = tuple(one.name for one in QUANTITIES)
    return (
        f"SELECT Quantity, {''.join(f'toString({k}) AS {k}, ' for k in keys)}"
        "sum(N) AS n, sum(Sum) AS total, max(Max) AS most, "
        f"quantilesTDigestMerge({_LEVELS})(Sketch) AS q "
        f"FROM ({parts(filters, by, window, names)}) GROUP BY {group} ORDER BY {group}"
    )


def parts(filters: Filters, by: Sequence[str], window: Window, names: Sequence[str]) -> str:
    """SQL for all sketches of ``window`` with Quantity, ``k0`` …, Began (DateTime), N, Sum, Max, Sketch."""
    found = []
    for table, at, spans in (
        ("requests_1d", "Day", window.days), ("requests_1h", "Hour", window.hours),
        ("requests_1m", "Minute", window.minutes),
    ):  # fmt: skip
        if spans:
            found.append(_sketches(filters, by, table, at, spans, names))
    if window.raw:
        found.append(_edges(filters, by, window.raw, names))
    return " UNION ALL ".join(found)


def _sketches(
    filters: Filters, by: Sequence[str], table: str, at: str, spans: Sequence[tuple[int, int]],
    names: Sequence[str],
) -> str:  # fmt: skip
    keys = "".join(f"{SLICED[name][0]} AS k{i}, " for i, name in enumerate(by))
    times = " OR ".join(
        f"({at} >= toDateTime({a // 10**9}, 'UTC') AND {at} < toDateTime({b // 10**9}, 'UTC'))"
        for a, b in spans
    )
    wanted = ", ".join(f"'{name}'" for name in names)
    return (
        f"SELECT Quantity, {keys}{at} AS Began, N, Sum, Max, Sketch FROM {{database:Identifier}}.{table} "
        f"WHERE Quantity IN ({wanted}) AND ({times}) AND {_kept(filters)}"
    )


def _kept(filters: Filters) -> str:
    """The filters over the sketches' columns; values are bound under the names that ``where`` uses."""
    open_ended = filters.model_copy(update={"since_unix_ns": None, "until_unix_ns": None})
    sql = where(open_ended).sql
    for theirs, ours in (
        ("coalesce(Warm, false)", "Warm = 1"), ("coalesce(CachedTokens, 0) > 0", "Cached = 1"),
    ):  # fmt: skip
        sql = sql.replace(theirs, ours)
    return sql


def _edges(
    filters: Filters, by: Sequence[str], spans: Sequence[tuple[int, int]], names: Sequence[str]
) -> str:
    """The requests between the bounds and the whole minutes, as sketches of their own."""
    keys = "".join(f"{SLICED[name][1]} AS k{i}, " for i, name in enumerate(by))
    group = "".join(f", k{i}" for i in range(len(by)))
    times = " OR ".join(
        f"(Timestamp >= fromUnixTimestamp64Nano({a}, 'UTC') "
        f"AND Timestamp < fromUnixTimestamp64Nano({b}, 'UTC'))"
        for a, b in spans
    )
    pairs = ", ".join(
        f"('{one.name}', toUInt64(ifNull({one.value}, 0)), toBool({one.has}))"
        for one in (*QUANTITIES, INPUT_TOKENS, OUTPUT_TOKENS)
        if one.name in names
    )
    return (
        f"SELECT CAST(one.1, 'LowCardinality(String)') AS Quantity, {keys}"
        "toDateTime(toStartOfMinute(Timestamp), 'UTC') AS Began, "
        "count() AS N, sum(one.2) AS Sum, max(one.2) AS Max, "
        f"quantilesTDigestState(0.5, 0.9, 0.95, 0.99)(one.2) AS Sketch "
        f"FROM {{database:Identifier}}.requests ARRAY JOIN arrayFilter(x -> x.3, [{pairs}]) AS one "
        f"WHERE ({times}) AND {where(filters).sql} GROUP BY Quantity, Began{group}"
    )


def _exact(chosen: Where, by: Sequence[str]) -> str:
    keys = "".join(f"toString({SLICED[name][1]}) AS k{i}, " for i, name in enumerate(by))
    group = f" GROUP BY {', '.join(f'k{i}' for i in range(len(by)))}" if by else ""
    figures = ", ".join(_figures(one) for one in QUANTITIES)
    return f"SELECT {keys}{figures} FROM {{database:Identifier}}.requests WHERE {chosen.sql}{group}"


def _figures(one: Quantity) -> str:
    name, value, has = one.name, f"ifNull({one.value}, 0)", one.has
    return (
        f"countIf({has}) AS n_{name}, sumIf({value}, {has}) AS sum_{name}, "
        f"maxIf({value}, {has}) AS max_{name}, "
        f"quantilesExactInclusiveIf({_LEVELS})({value}, {has}) AS q_{name}"
    )


def _read(row: Row, by: int) -> list[StagePercentiles]:
    key = tuple(str(row[f"k{i}"]) for i in range(by))
    if "Quantity" in row:
        return [
            StagePercentiles(key, row["Quantity"], row["n"], row["total"], row["most"], tuple(row["q"]))
        ]
    return [
        StagePercentiles(
            key, one.name, row[f"n_{one.name}"], round(row[f"sum_{one.name}"]),
            round(row[f"max_{one.name}"]), tuple(row[f"q_{one.name}"]),
        )
        for one in QUANTITIES
        if row[f"n_{one.name}"]
    ]  # fmt: skip
