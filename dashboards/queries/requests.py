"""Lists of single requests: the latest, the slowest."""

from __future__ import annotations

from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.trace import Requests, RequestSummary
from dashboards.queries.base import QueryLimits, QueryStore, Row, count_of, run
from dashboards.queries.measures import STAGE_COLUMNS

MOST_REQUESTS: Final = 1000
SORTS: Final = {
    "start": "StartNs DESC",
    "e2e": "E2ENs DESC, StartNs DESC",
    "ttft": "FirstTokenNs DESC NULLS LAST, StartNs DESC",
    "end": "StartNs + toInt64(E2ENs) DESC",
}
_FIRST: Final = {
    "start": ("toUnixTimestamp64Nano(Timestamp)", "Int64"),
    "e2e": ("E2ENs", "UInt64"),
    "ttft": ("ifNull(FirstTokenNs, 0)", "UInt64"),
    "end": ("toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs)", "Int64"),
}
"""What each list is sorted by before all else; none below the last one shown can be in it."""
_COLUMNS: Final = (
    "toUnixTimestamp64Nano(Timestamp) AS StartNs",
    *("TraceId", "SpanId", "Model", "Operation", "Route", "Status", "HttpStatus", "ErrorType"),
    *("E2ENs", "FirstTokenNs", "TpotNs", "InputTokens", "OutputTokens", "CachedTokens", "Warm"),
    *STAGE_COLUMNS.values(),
)


def requests(
    store: QueryStore,
    filters: Filters,
    *,
    sort: str = "start",
    limit: int = 20,
    limits: QueryLimits | None = None,
) -> Requests:
    """The first ``limit`` of the chosen requests, the first one first.

    ``sort``: those that began or ended last, or were slowest by e2e or ttft.

    Raises:
        BadValueError: ``sort`` is not known, ``limit`` not in 1..1000.
        UnavailableError: the store gave no answer.
    """
    if sort not in SORTS:
        raise BadValueError(f"sort {sort!r} is not known: it is one of {', '.join(SORTS)}")
    if not 1 <= limit <= MOST_REQUESTS:
        raise BadValueError(f"limit {limit} is out of range: give 1 to {MOST_REQUESTS}")
    picked = where(filters)
    chosen = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    order = f"ORDER BY {SORTS[sort]}, TraceId, SpanId LIMIT {limit:d}"
    bound = limits or QueryLimits()
    value, kind = _FIRST[sort]
    edge = f"SELECT {value} AS edge {chosen} ORDER BY edge DESC LIMIT 1 OFFSET {limit - 1:d}"
    last = run(store, edge, picked.params, bound)  # reads one column, where the list reads many
    within, params = f"AND {value} >= {{edge:{kind}}}", {**picked.params, "edge": 0}
    if last:
        params["edge"] = last[0]["edge"]
    sql = " ".join(("SELECT", ", ".join(_COLUMNS), chosen, within, order))
    rows = run(store, sql, params, bound)
    total = len(rows)
    if last:
        total = count_of(store, picked, bound)
    return Requests(
        sort=sort,
        limit=limit,
        total=total,
        requests=tuple(_summary(row) for row in rows),
    )


def slowest(
    store: QueryStore, filters: Filters, *, limit: int = 10, limits: QueryLimits | None = None
) -> Requests:
    """The chosen requests with the longest E2E."""
    return requests(store, filters, sort="e2e", limit=limit, limits=limits)


def _summary(row: Row) -> RequestSummary:
    longest = max(STAGE_COLUMNS, key=lambda stage: int(row[STAGE_COLUMNS[stage]]))
    longest_ns = int(row[STAGE_COLUMNS[longest]])
    return RequestSummary(
        trace_id=row["TraceId"],
        span_id=row["SpanId"],
        start_unix_ns=row["StartNs"],
        model=row["Model"],
        operation=row["Operation"],
        route=row["Route"],
        status=row["Status"],
        http_status=row["HttpStatus"] or None,
        error_type=row["ErrorType"] or None,
        e2e_ns=row["E2ENs"],
        ttft_ns=row["FirstTokenNs"],
        tpot_ns=row["TpotNs"],
        input_tokens=row["InputTokens"],
        output_tokens=row["OutputTokens"],
        cached_tokens=row["CachedTokens"],
        warm=row["Warm"],
        longest_stage=str(longest) if longest_ns else None,
        longest_stage_ns=longest_ns or None,
    )
