"""Checked rows out of OTLP messages; what cannot be stored is refused one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from collectors.receive.attributes import TEXT_LIMIT, attribute_map, cut, shared_map, text_of
from tracer import semconv

SPAN_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUS_CODES = ("Unset", "Ok", "Error")
FUTURE_NS = 24 * 3600 * 10**9
"""How far ahead of this host's clock a time may be before it is taken for nonsense."""
REPAIR = "stagelens.repair"
"""On a span that was not stored as it came: the rules that were applied, after commas."""
MAX_UNIX_NS = 2**63 - 1
NO_RECORDED_VALUE = 1

TRACE_COLUMNS = (
    "Timestamp", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind",
    "ServiceName", "ResourceAttributes", "ScopeName", "ScopeVersion", "SpanAttributes", "Duration",
    "StatusCode", "StatusMessage", "Events.Timestamp", "Events.Name", "Events.Attributes",
    "Links.TraceId", "Links.SpanId", "Links.TraceState", "Links.Attributes",
)  # fmt: skip
LOG_COLUMNS = (
    "Timestamp", "TraceId", "SpanId", "TraceFlags", "SeverityText", "SeverityNumber", "ServiceName",
    "Body", "ResourceSchemaUrl", "ResourceAttributes", "ScopeSchemaUrl", "ScopeName",
    "ScopeVersion", "ScopeAttributes", "LogAttributes", "EventName",
)  # fmt: skip
STEP_COLUMNS = (
    "Timestamp", "ServiceName", "ServiceInstance", "Model", "Engine", "DurationNs",
    "PrefillRequests", "PrefillTokens", "DecodeRequests", "DecodeTokens", "Running", "Waiting",
    "KvCacheUsage",
)  # fmt: skip
Row = tuple[object, ...]


@dataclass(slots=True)
class Batch:
    """Rows by table, and what was refused by reason, of one export request.

    ``plain`` spans have no rows here: the store's engine makes them of the body.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    plain: int = 0

    def add(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    @property
    def kept(self) -> int:
        return self.plain + sum(len(rows) for rows in self.rows.values())


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Times the store can hold: not older than its TTL, not far in the future."""

    oldest_unix_ns: int
    newest_unix_ns: int

    def judge(self, unix_ns: int) -> str | None:
        """The reason to refuse a time, or None."""
        if unix_ns < self.oldest_unix_ns:
            return "older_than_ttl" if unix_ns else "no_time"
        return "time_in_future" if unix_ns > self.newest_unix_ns else None


def trace_batch(request: Any, window: TimeWindow) -> Batch:  # noqa: ANN401
    """Rows of an ``ExportTraceServiceRequest``; bad spans are refused alone."""
    batch = Batch()
    for group in request.resource_spans:
        resource = shared_map(group.resource.attributes)
        for scoped in group.scope_spans:
            for span in scoped.spans:
                reason = _refuse_span(span, window)
                if reason is not None:
                    batch.refused[reason] += 1
                else:
                    batch.add("otel_traces", _span_row(span, resource, scoped.scope))
    return batch


def _refuse_span(span: Any, window: TimeWindow) -> str | None:  # noqa: ANN401
    if len(span.trace_id) != 16 or not any(span.trace_id):
        return "bad_trace_id"
    if len(span.span_id) != 8 or not any(span.span_id):
        return "bad_span_id"
    if span.end_time_unix_nano > window.newest_unix_ns:
        return "time_in_future"
    return window.judge(span.start_time_unix_nano)


def _span_row(span: Any, resource: dict[str, str], scope: Any) -> Row:  # noqa: ANN401
    attributes, repairs = attribute_map(span.attributes), []
    duration = span.end_time_unix_nano - span.start_time_unix_nano
    if duration < 0:
        repairs.append("end_before_start:duration_0")
        duration = 0
    parent = _hex(span.parent_span_id, 8)
    if not parent and any(span.parent_span_id):
        repairs.append("bad_parent_id:ignored")
    if repairs:
        attributes[REPAIR] = ",".join(repairs)
    return (
        span.start_time_unix_nano, span.trace_id.hex(), span.span_id.hex(), parent,
        cut(span.trace_state), cut(span.name), _of(SPAN_KINDS, span.kind),
        resource.get(semconv.SERVICE_NAME, ""), resource, cut(scope.name), cut(scope.version),
        attributes, duration, _of(STATUS_CODES, span.status.code), cut(span.status.message, TEXT_LIMIT),
        [min(e.time_unix_nano, MAX_UNIX_NS) for e in span.events], [cut(e.name) for e in span.events],
        [attribute_map(e.attributes) for e in span.events],
        [_hex(link.trace_id, 16) for link in span.links], [_hex(link.span_id, 8) for link in span.links],
        [cut(link.trace_state) for link in span.links],
        [attribute_map(link.attributes) for link in span.links],
    )  # fmt: skip


def _hex(number: bytes, size: int) -> str:
    """An id as text; empty when it is none."""
    return number.hex() if len(number) == size and any(number) else ""


def _of(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]


def log_batch(request: Any, window: TimeWindow) -> Batch:  # noqa: ANN401
    """Rows of an ``ExportLogsServiceRequest``; engine steps go to their own table."""
    batch = Batch()
    for group in request.resource_logs:
        resource = shared_map(group.resource.attributes)
        for scoped in group.scope_logs:
            scope_attributes = shared_map(scoped.scope.attributes)
            for record in scoped.log_records:
                at = record.time_unix_nano or record.observed_time_unix_nano
                reason = window.judge(at)
                if reason is not None:
                    batch.refused[reason] += 1
                elif record.event_name == semconv.EVENT_ENGINE_STEP:
                    _add_step(batch, record, resource, at)
                else:
                    head = (resource, group.schema_url, scoped, scope_attributes)
                    batch.add("otel_logs", _log_row(record, at, *head))
    return batch


def _log_row(
    record: Any, at: int, resource: dict[str, str], schema: str, scoped: Any, scope_map: dict[str, str]  # noqa: ANN401
) -> Row:
    scope = scoped.scope
    return (
        at, _hex(record.trace_id, 16), _hex(record.span_id, 8), record.flags & 0xFF,
        cut(record.severity_text), min(max(record.severity_number, 0), 255),
        resource.get(semconv.SERVICE_NAME, ""), text_of(record.body), cut(schema), resource,
        cut(scoped.schema_url), cut(scope.name), cut(scope.version), scope_map,
        attribute_map(record.attributes), cut(record.event_name),
    )  # fmt: skip


def _add_step(batch: Batch, record: Any, resource: dict[str, str], at: int) -> None:  # noqa: ANN401
    values = attribute_map(record.attributes)
    try:
        batch.add(
            "engine_steps",
            (
                at, resource.get(semconv.SERVICE_NAME, ""),
                resource.get(semconv.SERVICE_INSTANCE_ID, ""), values.get(semconv.MODEL, ""),
                _count(values, semconv.STEP_ENGINE, 16), _count(values, semconv.STEP_DURATION_NS, 64),
                _count(values, semconv.STEP_PREFILL_REQUESTS), _count(values, semconv.STEP_PREFILL_TOKENS),
                _count(values, semconv.STEP_DECODE_REQUESTS), _count(values, semconv.STEP_DECODE_TOKENS),
                _count(values, semconv.STEP_RUNNING), _count(values, semconv.STEP_WAITING),
                _share(values, semconv.STEP_KV_CACHE_USAGE),
            ),
        )  # fmt: skip
    except ValueError:
        batch.refused["bad_step"] += 1


def _count(values: dict[str, str], name: str, bits: int = 32) -> int:
    number = int(values.get(name, "0"))
    if not 0 <= number < 2**bits:
        raise ValueError(name)
    return number


def _share(values: dict[str, str], name: str) -> float:
    number = float(values.get(name, "0"))
    if not 0 <= number <= 1:
        raise ValueError(name)
    return number
