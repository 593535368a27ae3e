"""Many requests at once, for a replay or beside a client's own figures."""

from __future__ import annotations

from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.records import Record, Records
from dashboards.queries.base import QueryLimits, QueryStore, run

MOST_RECORDS: Final = 100_000
_COLUMNS: Final = {
    "trace_id": "TraceId",
    "start_unix_ns": "toUnixTimestamp64Nano(Timestamp)",
    "stream": "Stream",
    "status": "Status",
    "e2e_ns": "E2ENs",
    "ttft_ns": "FirstTokenNs",
    "tpot_ns": "TpotNs",
    "prompt_ns": "PromptNs",
    "queue_ns": "QueueNs",
    "prefill_ns": "PrefillNs",
    "decode_ns": "DecodeNs",
    "deliver_ns": "DeliverNs",
    "input_tokens": "InputTokens",
    "output_tokens": "OutputTokens",
    "cached_tokens": "CachedTokens",
}


def records(
    store: QueryStore, filters: Filters, *, limit: int = 10_000, limits: QueryLimits | None = None
) -> Records:
    """The ``limit`` earliest of the chosen requests.

    Raises:
        BadValueError: ``limit`` is not in 1..100000.
        UnavailableError: the store gave no answer.
    """
    if not 1 <= limit <= MOST_RECORDS:
        raise BadValueError(f"limit {limit} is out of range: give 1 to {MOST_RECORDS}")
    picked = where(filters)
    chosen = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    columns = ", ".join(f"{sql} AS {name}" for name, sql in _COLUMNS.items())
    order = f"ORDER BY Timestamp, TraceId, SpanId LIMIT {limit:d}"
    bound = limits or QueryLimits()
    rows = run(store, f"SELECT {columns} {chosen} {order}", picked.params, bound)
    total = run(store, f"SELECT count() AS total {chosen}", picked.params, bound)
    return Records(
        total=int(total[0]["total"]), records=tuple(Record.model_validate(row) for row in rows)
    )
