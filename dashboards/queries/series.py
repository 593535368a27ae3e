"""Requests over time: percentiles of each time step, from t-digests of that step alone."""

# ruff: noqa: S608  only our own words are put together here; values are bound
from __future__ import annotations

import math
from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.series import Cell, Series, Step
from dashboards.queries import rollups
from dashboards.queries.base import QueryLimits, QueryStore, Row, count_of, run
from dashboards.times import NS_PER_S

MOST_STEPS: Final = 120
STEPS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400, 604_800)
CELLS_PER_DOUBLING: Final = 2
ROLLED_FROM_NS: Final = 12 * 3600 * NS_PER_S
"""Windows this long are read from the roll-ups, where they keep apart what is asked for."""
MEASURES: Final = {"e2e": "E2ENs", "ttft": "FirstTokenNs"}

_START: Final = "intDiv(toUnixTimestamp64Nano(Timestamp), {step:Int64}) * {step:Int64} AS At"
_STEP_COLUMNS: Final = (
    _START,
    "count() AS Requests",
    "countIf(Status = 'error') AS Errors",
    "countIf(Status = 'cancelled') AS Cancelled",
    "sum(OutputTokens) AS Tokens",
    "quantilesTDigest(0.5, 0.95, 0.99)(E2ENs) AS E2E",
    "count(FirstTokenNs) AS TtftN",
    "quantilesTDigestIf(0.5, 0.95, 0.99)(ifNull(FirstTokenNs, 0), FirstTokenNs IS NOT NULL) AS Ttft",
)


def series(
    store: QueryStore,
    filters: Filters,
    *,
    now_unix_ns: int,
    measure: str = "e2e",
    limits: QueryLimits | None = None,
) -> Series:
    """At most ``MOST_STEPS`` steps over the window, and a heat map of ``measure``.

    A cell spans half a doubling: its bounds are powers of the square root of two. A window
    without an end ends now: a request whose sender's clock is ahead is counted in ``later``,
    for a single one would stretch the axis over years.

    Raises:
        BadValueError: ``measure`` is not known. UnavailableError: the store gave no answer.
    """
    column = MEASURES.get(measure)
    if column is None:
        raise BadValueError(f"measure {measure!r} is not known: it is one of {', '.join(MEASURES)}")
    begin = filters.since_unix_ns or 0
    end = filters.until_unix_ns or now_unix_ns
    bound = limits or QueryLimits()
    picked = where(filters.model_copy(update={"until_unix_ns": end}))
    source = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    if not begin:
        first = run(
            store, f"SELECT toUnixTimestamp64Nano(min(Timestamp)) AS First {source}",
            picked.params, bound,
        )  # fmt: skip
        begin = int(first[0]["First"]) or end
    step = step_for(max(0, end - begin))
    params = {**picked.params, "step": step}
    rolled = rollups.allowed(filters) and step >= rollups.MINUTE_NS and end - begin >= ROLLED_FROM_NS
    asked = (
        _rolled_sql(filters, rollups.cut(begin, end, hours=step >= rollups.HOUR_NS))
        if rolled
        else f"SELECT {', '.join(_STEP_COLUMNS)} {source} GROUP BY At ORDER BY At"
    )
    rows = run(store, asked, params, bound)
    cells = run(
        store,
        f"SELECT {_START}, toInt32(floor(log2({column}) * {CELLS_PER_DOUBLING})) AS Level, "
        f"count() AS N {source} AND {column} > 0 GROUP BY At, Level ORDER BY At, Level",
        params, bound,
    )  # fmt: skip
    return Series(
        filters=filters, from_unix_ns=begin, to_unix_ns=end, step_ns=step, measure=measure,
        rolled_up=rolled, later=_later(store, filters, end, bound),
        steps=tuple(_step(row) for row in rows), cells=tuple(_cell(row) for row in cells),
    )  # fmt: skip


def _later(store: QueryStore, filters: Filters, end: int, limits: QueryLimits) -> int:
    """How many of the chosen requests began after a window that has no end of its own."""
    if filters.until_unix_ns is not None:
        return 0
    since = max(end, filters.since_unix_ns or 0)
    return count_of(store, where(filters.model_copy(update={"since_unix_ns": since})), limits)


def _rolled_sql(filters: Filters, window: rollups.Window) -> str:
    """The same rows from the sketches by minute and hour; they hold no single request."""
    names = ("e2e", "ttft", "output_tokens")
    start = "intDiv(toInt64(toUnixTimestamp(Began)) * 1000000000, {step:Int64}) * {step:Int64}"
    return (
        f"SELECT {start} AS At, sumIf(N, Quantity = 'e2e') AS Requests, "
        "sumIf(N, Quantity = 'e2e' AND k0 = 'error') AS Errors, "
        "sumIf(N, Quantity = 'e2e' AND k0 = 'cancelled') AS Cancelled, "
        "if(sumIf(N, Quantity = 'output_tokens') = 0, NULL, "
        "sumIf(Sum, Quantity = 'output_tokens')) AS Tokens, "
        "quantilesTDigestMergeIf(0.5, 0.95, 0.99)(Sketch, Quantity = 'e2e') AS E2E, "
        "sumIf(N, Quantity = 'ttft') AS TtftN, "
        "quantilesTDigestMergeIf(0.5, 0.95, 0.99)(Sketch, Quantity = 'ttft') AS Ttft "
        f"FROM ({rollups.parts(filters, ('status',), window, names)}) GROUP BY At ORDER BY At"
    )


def step_for(window_ns: int) -> int:
    """The shortest of the known steps of which ``MOST_STEPS`` cover the window, in ns."""
    for seconds in STEPS_S:
        if window_ns <= seconds * NS_PER_S * MOST_STEPS:
            return seconds * NS_PER_S
    return math.ceil(window_ns / MOST_STEPS / (STEPS_S[-1] * NS_PER_S)) * STEPS_S[-1] * NS_PER_S


def _step(row: Row) -> Step:
    e2e, ttft = row["E2E"], row["Ttft"] if row["TtftN"] else (None, None, None)
    return Step(
        start_unix_ns=row["At"], requests=row["Requests"], errors=row["Errors"],
        cancelled=row["Cancelled"], output_tokens=row["Tokens"],
        e2e_p50_ns=_whole(e2e[0]), e2e_p95_ns=_whole(e2e[1]), e2e_p99_ns=_whole(e2e[2]),
        ttft_n=row["TtftN"],
        ttft_p50_ns=_whole(ttft[0]), ttft_p95_ns=_whole(ttft[1]), ttft_p99_ns=_whole(ttft[2]),
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


def _cell(row: Row) -> Cell:
    level = int(row["Level"])
    low, high = (round(2 ** (n / CELLS_PER_DOUBLING)) for n in (level, level + 1))
    return Cell(start_unix_ns=row["At"], low_ns=low, high_ns=high, n=row["N"])
