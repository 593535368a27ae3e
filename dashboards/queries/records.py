"""Many requests at once, for a replay or beside a client's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dashboards.errors import BadValueError
from dashboards.filters import Filters, where
from dashboards.models.records import Record, Records
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from tracer import semconv

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
_MARKS_SQL: Final = """\
SELECT TraceId, SpanId, SpanAttributes[{marks_key:String}] AS Marks
FROM {database:Identifier}.otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({first_ns:Int64}, 'UTC')
  AND Timestamp <= fromUnixTimestamp64Nano({last_ns:Int64}, 'UTC') AND Marks != ''
  AND (TraceId, SpanId) IN (SELECT TraceId, SpanId {chosen})"""


def records(
    store: QueryStore, filters: Filters, *, limit: int = 10_000, marks: bool = False,
    limits: QueryLimits | None = None,
) -> Records:  # fmt: skip
    """The ``limit`` earliest of the chosen requests; ``marks``: with those of their prompts.

    Raises:
        BadValueError: ``limit`` is not in 1..100000.
        UnavailableError: the store gave no answer.
    """
    if not 1 <= limit <= MOST_RECORDS:
        raise BadValueError(f"limit {limit} is out of range: give 1 to {MOST_RECORDS}")
    picked = where(filters)
    chosen = f"FROM {{database:Identifier}}.requests WHERE {picked.sql}"
    columns = ", ".join(f"{sql} AS {name}" for name, sql in (_COLUMNS | {"span_id": "SpanId"}).items())
    order = f"ORDER BY Timestamp, TraceId, SpanId LIMIT {limit:d}"
    bound = limits or QueryLimits()
    rows = run(store, f"SELECT {columns} {chosen} {order}", picked.params, bound)
    total = run(store, f"SELECT count() AS total {chosen}", picked.params, bound)
    if marks and rows:
        known = _marks(store, f"{chosen} {order}", picked.params, rows, bound)
        rows = [
            {**row, "prompt_marks": known.get((row["trace_id"], row["span_id"]), "")} for row in rows
        ]
    return Records(
        total=int(total[0]["total"]), records=tuple(Record.model_validate(row) for row in rows)
    )


def _marks(
    store: QueryStore, chosen: str, params: Mapping[str, object], rows: Sequence[Row],
    limits: QueryLimits,
) -> dict[tuple[str, str], str]:  # fmt: skip
    """Of the spans: only a replay needs them, so the narrow table has no column of them."""
    more = {
        "marks_key": semconv.PROMPT_MARKS,
        "first_ns": int(rows[0]["start_unix_ns"]), "last_ns": int(rows[-1]["start_unix_ns"]),
    }  # fmt: skip
    found = run(store, _MARKS_SQL.replace("{chosen}", chosen), {**params, **more}, limits)
    return {(row["TraceId"], row["SpanId"]): row["Marks"] for row in found}
