"""One trace by its id, with the record of each request in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dashboards.errors import AmbiguousError, BadValueError, NotStoredError
from dashboards.models.trace import RequestRecord, Span, SpanEvent, StageTime, Trace
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.measures import PARTS, STAGE_COLUMNS
from dashboards.queries.tree import Node, order_tree
from dashboards.times import NS_PER_S
from tracer import semconv

MOST_SPANS: Final = 5000
MOST_VALUE_CHARS: Final = 4096
LEAST_PREFIX: Final = 4
ID_DIGITS: Final = 32
_SHOWN_IDS: Final = 5

_FIND_SQL: Final = """\
SELECT TraceId AS id, toInt64(min(toUnixTimestamp(Start))) AS first,
  toInt64(max(toUnixTimestamp(End))) AS last
FROM {database:Identifier}.otel_traces_trace_id_ts
WHERE startsWith(TraceId, {prefix:String}) GROUP BY TraceId ORDER BY TraceId LIMIT {most:UInt32}"""
_SCAN_SQL: Final = """\
SELECT TraceId AS id, toInt64(min(toUnixTimestamp(Timestamp))) AS first,
  toInt64(max(toUnixTimestamp(Timestamp))) AS last
FROM {database:Identifier}.otel_traces
WHERE startsWith(TraceId, {prefix:String}) GROUP BY TraceId ORDER BY TraceId LIMIT {most:UInt32}"""
_COUNT_SQL: Final = """\
SELECT count() AS total FROM {database:Identifier}.otel_traces
WHERE TraceId = {id:String}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')"""
_SPANS_SQL: Final = """\
SELECT SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, Duration, StatusCode,
  leftUTF8(StatusMessage, {chars:UInt32}) AS Message,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, ResourceAttributes[{boot:String}] AS BootId,
  mapApply((k, v) -> (k, leftUTF8(v, {chars:UInt32})), SpanAttributes) AS Attrs,
  arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS EventNs,
  Events.Name AS EventNames,
  arrayMap(m -> mapApply((k, v) -> (k, leftUTF8(v, {chars:UInt32})), m), Events.Attributes)
    AS EventAttrs,
  arraySum(arrayMap(v -> lengthUTF8(v) > {chars:UInt32}, arrayConcat([StatusMessage],
    mapValues(SpanAttributes), arrayFlatten(arrayMap(m -> mapValues(m), Events.Attributes)))))
    AS Cut
FROM {database:Identifier}.otel_traces
WHERE TraceId = {id:String}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
ORDER BY StartNs, Duration DESC, SpanId LIMIT {most:UInt32}"""
_RECORDS_SQL: Final = """\
SELECT *, toUnixTimestamp64Nano(Timestamp) AS StartNs
FROM {database:Identifier}.requests
WHERE TraceId = {id:String}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
ORDER BY StartNs, SpanId LIMIT {most:UInt32}"""


@dataclass(frozen=True, slots=True)
class Place:
    """A stored trace and the whole seconds it lies between, which bound the search."""

    trace_id: str
    first_unix_s: int
    last_unix_s: int

    @property
    def params(self) -> dict[str, object]:
        """``id``, ``first`` and ``end`` (ns) of a query over the trace."""
        return {
            "id": self.trace_id,
            "first": self.first_unix_s * NS_PER_S,
            "end": (self.last_unix_s + 1) * NS_PER_S,
        }


def trace(store: QueryStore, trace_id: str, limits: QueryLimits | None = None) -> Trace:
    """The trace whose id is ``trace_id``, or the only one whose id begins with it.

    At most ``MOST_SPANS`` spans, the earliest; values of attributes of spans and events and
    messages of a status are cut at ``MOST_VALUE_CHARS`` characters, and counted.

    Raises:
        BadValueError: no hexadecimal id. NotStoredError: none. AmbiguousError: several.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    place = find_trace(store, parse_trace_id(trace_id), bound)
    params: dict[str, object] = {
        **place.params, "chars": MOST_VALUE_CHARS, "most": MOST_SPANS, "boot": semconv.BOOT_ID,
    }  # fmt: skip
    rows = run(store, _SPANS_SQL, params, bound)
    if not rows:
        raise NotStoredError(none_stored(place.trace_id))
    nodes = order_tree([(r["SpanId"], r["ParentSpanId"], r["StartNs"]) for r in rows])
    origin = int(rows[nodes[0].index]["StartNs"])
    records = run(store, _RECORDS_SQL, params, bound)
    total = int(run(store, _COUNT_SQL, params, bound)[0]["total"])
    timed = [r for r in rows if semconv.OUTCOME_SUCCESS not in r["Attrs"]] or rows  # told later
    first = min(int(r["StartNs"]) for r in timed)
    told = {r["SpanId"]: r["Attrs"].get(semconv.SOURCE_DETAIL, "") for r in rows}
    return Trace(
        trace_id=place.trace_id,
        start_unix_ns=origin,
        duration_ns=max(int(r["StartNs"]) + int(r["Duration"]) for r in timed) - first,
        spans=tuple(_span(rows[node.index], node, origin) for node in nodes),
        spans_left_out=max(0, total - len(rows)),
        values_cut=sum(int(r["Cut"]) for r in rows),
        requests=tuple(record(r, origin, told.get(r["SpanId"], "")) for r in records),
    )


def parse_trace_id(text: str) -> str:
    """The digits of an id or of its beginning, in lower case.

    Raises:
        BadValueError: it is neither.
    """
    digits = text.strip().lower()
    if not re.fullmatch(r"[0-9a-f]+", digits) or len(digits) > ID_DIGITS:
        raise BadValueError(
            f"trace id {text!r} is not one: give its {ID_DIGITS} hexadecimal digits, or its "
            f"first {LEAST_PREFIX} or more"
        )
    if len(digits) < LEAST_PREFIX:
        raise BadValueError(
            f"trace id {text!r} is too short to search for: give at least {LEAST_PREFIX} digits"
        )
    return digits


def find_trace(store: QueryStore, prefix: str, limits: QueryLimits) -> Place:
    """The only stored trace whose id begins with ``prefix``, as :func:`parse_trace_id` gave it.

    Raises:
        NotStoredError, AmbiguousError, UnavailableError: none, several, no answer.
    """
    params: dict[str, object] = {"prefix": prefix, "most": _SHOWN_IDS + 1}
    found = run(store, _FIND_SQL, params, limits)
    if not found:  # spans that another writer stored without the look-up table
        found = run(store, _SCAN_SQL, params, limits)
    if not found:
        raise NotStoredError(none_stored(prefix))
    if len(found) > 1:
        shown = ", ".join(row["id"] for row in found[:_SHOWN_IDS])
        more = " and more" if len(found) > _SHOWN_IDS else ""
        raise AmbiguousError(
            f"trace id {prefix!r} begins several traces ({shown}{more}): give more digits"
        )
    return Place(found[0]["id"], found[0]["first"], found[0]["last"])


def none_stored(prefix: str) -> str:
    """The sentence for a trace that is not there."""
    return (
        f"no trace {prefix!r} is stored: check the id (a request's spans arrive within seconds "
        "of its end, and old ones are deleted after the store's retention time)"
    )


def _span(row: Row, node: Node, origin_ns: int) -> Span:
    attributes: dict[str, str] = row["Attrs"]
    events = zip(row["EventNs"], row["EventNames"], row["EventAttrs"], strict=True)
    return Span(
        span_id=row["SpanId"],
        parent_span_id=row["ParentSpanId"] or None,
        depth=node.depth,
        orphan=node.orphan,
        name=row["SpanName"],
        kind=row["SpanKind"],
        service=row["ServiceName"],
        stage=attributes.get(semconv.STAGE) or None,
        start_unix_ns=row["StartNs"],
        offset_ns=row["StartNs"] - origin_ns,
        duration_ns=row["Duration"],
        status=row["StatusCode"],
        status_message=row["Message"],
        boot_id=row["BootId"] or None,
        attributes=attributes,
        events=tuple(
            SpanEvent(name=name, offset_ns=at - origin_ns, attributes=more)
            for at, name, more in events
        ),
    )


def record(row: Row, origin_ns: int, span_detail: str) -> RequestRecord:
    """The record in a row of ``requests`` (``StartNs`` beside its columns).

    The row's ``SourceDetail`` is empty where the view made it: ``span_detail`` is what its root
    span says then.
    """
    gaps: list[int] = row["ItlNs"]
    stages = _stage_times(row)
    return RequestRecord(
        trace_id=row["TraceId"],
        span_id=row["SpanId"],
        start_unix_ns=row["StartNs"],
        offset_ns=row["StartNs"] - origin_ns,
        service=row["ServiceName"],
        service_instance=row["ServiceInstance"],
        model=row["Model"],
        operation=row["Operation"],
        route=row["Route"],
        http_status=row["HttpStatus"] or None,
        status=row["Status"],
        error_type=row["ErrorType"] or None,
        finish_reason=row["FinishReason"] or None,
        stream=row["Stream"],
        choices=row["Choices"],
        e2e_ns=row["E2ENs"],
        stages=stages,
        stages_sum_ns=sum(one.ns for one in stages if one.part_of is None),
        first_chunk_ns=row["FirstChunkNs"],
        ttft_ns=row["FirstTokenNs"],
        first_answer_ns=row["FirstAnswerNs"],
        tpot_ns=row["TpotNs"],
        itl_kind=row["ItlKind"] or None,
        itl_n=len(gaps),
        itl_max_ns=max(gaps, default=None),
        input_tokens=row["InputTokens"],
        output_tokens=row["OutputTokens"],
        cached_tokens=row["CachedTokens"],
        reasoning_tokens=row["ReasoningTokens"],
        preemptions=row["Preemptions"],
        in_flight=row["InFlight"],
        running=row["Running"],
        waiting=row["Waiting"],
        warm=row["Warm"],
        cold_reason=row["ColdReason"] or None,
        source=row["Source"] or None,
        source_detail=tuple(one for one in (row["SourceDetail"] or span_detail).split(",") if one),
        repairs=tuple(row["Repairs"]),
        tags=row["Tags"],
        cost=row["Cost"],
    )


def _stage_times(row: Row) -> tuple[StageTime, ...]:
    whole = int(row["E2ENs"])
    counts: dict[str, int] = row["StageCounts"]
    found: list[StageTime] = []

    def add(name: str, ns: int, count: int, part_of: str | None = None) -> None:
        share = ns / whole if whole else None
        found.append(StageTime(stage=name, part_of=part_of, ns=ns, count=count, share=share))

    for stage, column in STAGE_COLUMNS.items():
        add(str(stage), int(row[column]), counts.get(str(stage), 0))
        if (part := PARTS.get(stage)) and row[part.value]:
            count = row["Preemptions"] if part.value == "PreemptedNs" else 1
            add(part.name, int(row[part.value]), count, str(stage))
    return tuple(found)
