"""Requests over time: percentiles of each time step, from t-digests of that step alone.

Many requests' steps come out of the roll-ups; the heat map always counts the requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.series import Cell, Series, Step
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.rollups import (
    EXACT_UP_TO,
    HOUR_NS,
    MINUTE_NS,
    Window,
    answers,
    rolled_where,
    rows,
    total,
    window,
)
from dashboards.times import NS_PER_S

MOST_STEPS: Final = 120
STEPS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400, 604_800)
CELLS_PER_DOUBLING: Final = 2
MEASURES: Final = {"e2e": "E2ENs", "ttft": "FirstTokenNs"}

_START: Final = "intDiv(toUnixTimestamp64Nano(Timestamp), {step:Int64}) * {step:Int64} AS Step"
_STEP_COLUMNS: Final = (
    _START,
    "count() AS Many",
    "countIf(Status = 'error') AS Errors",
    "countIf(Status = 'cancelled') AS Cancelled",
    "sum(ifNull(OutputTokens, 0)) AS Tokens",
    "quantilesTDigest(0.5, 0.95, 0.99)(E2ENs) AS E2EAt",
    "count(FirstTokenNs) AS TtftKnown",
    "quantilesTDigestIf(0.5, 0.95, 0.99)(ifNull(FirstTokenNs, 0), FirstTokenNs IS NOT NULL) AS TtftAt",
)
_ROLLED_COLUMNS: Final = (
    "intDiv(toInt64(toUnixTimestamp(At)) * 1000000000, {step:Int64}) * {step:Int64} AS Step",
    "sum(Requests) AS Many", "sumIf(Requests, Status = 'error') AS Errors",
    "sumIf(Requests, Status = 'cancelled') AS Cancelled", "sum(OutputTokens) AS Tokens",
    "quantilesTDigestMerge(0.5, 0.9, 0.95, 0.99)(E2E) AS E2EAt", "sum(TtftN) AS TtftKnown",
    "quantilesTDigestMerge(0.5, 0.9, 0.95, 0.99)(Ttft) AS TtftAt",
)  # fmt: skip


def series(
    store: QueryStore,
    filters: Filters,
    *,
    now_unix_ns: int,
    measure: str = "e2e",
    limits: QueryLimits | None = None,
) -> Series:
    """At most ``MOST_STEPS`` steps over the window, and a heat map of ``measure``.

    A cell spans half a doubling: its bounds are powers of the square root of two.

    Raises:
        BadValueError: ``measure`` is not known. UnavailableError: the store gave no answer.
    """
    column = MEASURES.get(measure)
    if column is None:
        raise BadValueError(f"measure {measure!r} is not known: it is one of {', '.join(MEASURES)}")
    begin = filters.since_unix_ns or 0
    end = filters.until_unix_ns or now_unix_ns
    bound = limits or QueryLimits()
    picked = where(filters)
    source = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    if not begin:
        first = run(
            store, f"SELECT toUnixTimestamp64Nano(min(Timestamp)) AS First {source}",
            picked.params, bound,
        )  # fmt: skip
        begin = int(first[0]["First"]) or end
    step = step_for(max(0, end - begin))
    params = {**picked.params, "step": step}
    many = step >= MINUTE_NS and answers(filters) and total(store, picked, bound) > EXACT_UP_TO
    steps = (
        _rolled(store, filters, (begin, end, step), bound)
        if many
        else run(store, _by_step(_STEP_COLUMNS, source), params, bound)
    )
    cells = run(
        store,
        f"SELECT {_START}, toInt32(floor(log2({column}) * {CELLS_PER_DOUBLING})) AS Level, "
        f"count() AS N {source} AND {column} > 0 GROUP BY Step, Level ORDER BY Step, Level",
        params, bound,
    )  # fmt: skip
    return Series(
        filters=filters, from_unix_ns=begin, to_unix_ns=end, step_ns=step, measure=measure,
        steps=tuple(_step(row) for row in steps), cells=tuple(_cell(row) for row in cells),
    )  # fmt: skip


def _by_step(columns: Sequence[str], source: str) -> str:
    return f"SELECT {', '.join(columns)} {source} GROUP BY Step ORDER BY Step"


def _rolled(
    store: QueryStore, filters: Filters, times: tuple[int, int, int], limits: QueryLimits
) -> list[Row]:
    """The steps out of the roll-ups: hours where a step is of whole hours, else minutes."""
    begin, end, step = times
    span = window(begin, end)
    if step % HOUR_NS:
        span = Window(span.begin, span.end, span.end, span.end)
    picked = rolled_where(filters)
    params = {**picked.params, **span.params, "step": step}
    found = run(store, _by_step(_ROLLED_COLUMNS, f"FROM {rows(picked.sql)}"), params, limits)
    for row in found:
        for name in ("E2EAt", "TtftAt"):
            row[name] = [row[name][i] for i in (0, 2, 3)]
    return found


def step_for(window_ns: int) -> int:
    """The shortest of the known steps of which ``MOST_STEPS`` cover the window, in ns."""
    for seconds in STEPS_S:
        if window_ns <= seconds * NS_PER_S * MOST_STEPS:
            return seconds * NS_PER_S
    return math.ceil(window_ns / MOST_STEPS / (STEPS_S[-1] * NS_PER_S)) * STEPS_S[-1] * NS_PER_S


def _step(row: Row) -> Step:
    e2e, ttft = row["E2EAt"], row["TtftAt"] if row["TtftKnown"] else (None, None, None)
    return Step(
        start_unix_ns=row["Step"], requests=row["Many"], errors=row["Errors"],
        cancelled=row["Cancelled"], output_tokens=row["Tokens"],
        e2e_p50_ns=_whole(e2e[0]), e2e_p95_ns=_whole(e2e[1]), e2e_p99_ns=_whole(e2e[2]),
        ttft_n=row["TtftKnown"],
        ttft_p50_ns=_whole(ttft[0]), ttft_p95_ns=_whole(ttft[1]), ttft_p99_ns=_whole(ttft[2]),
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


def _cell(row: Row) -> Cell:
    level = int(row["Level"])
    low, high = (round(2 ** (n / CELLS_PER_DOUBLING)) for n in (level, level + 1))
    return Cell(start_unix_ns=row["Step"], low_ns=low, high_ns=high, n=row["N"])
