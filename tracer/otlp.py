"""OTLP bodies for spans, log records and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as PbResource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as PbStatus
from opentelemetry.trace import SpanKind

from tracer.limits import RESOURCE_VALUE_BYTES, shorten_values
from tracer.spans import SpanDraft

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

SAMPLED_LOCAL, PARENT_IS_REMOTE = 0x101, 0x200
"""Span flags: sampled; whether the parent is remote is known; it is."""
_KINDS = {
    SpanKind.INTERNAL: Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: Span.SPAN_KIND_CLIENT,
    SpanKind.PRODUCER: Span.SPAN_KIND_PRODUCER,
    SpanKind.CONSUMER: Span.SPAN_KIND_CONSUMER,
}
_ERROR = PbStatus(code=PbStatus.STATUS_CODE_ERROR)
_INT = 2**63

@dataclass(frozen=True, slots=True)
class LogRecordDraft:
    """One log record named by ``event_name``, at ``unix_ns``."""

    event_name: str
    unix_ns: int
    attributes: Mapping[str, str | bool | int | float]


def spans_of(trace_id: int, drafts: Sequence[SpanDraft]) -> list[Span]:
    """The spans of one trace as OTLP has them; all or none.

    Written straight from drafts: the SDK's spans and its encoder take ten times the CPU.

    Raises:
        Exception: a draft holds what no span can.
    """
    trace = trace_id.to_bytes(16, "big")
    return [_span(trace, draft) for draft in drafts]


def spans_body(resource: Resource, scope: str, spans: Sequence[Span]) -> bytes:
    """An ``ExportTraceServiceRequest`` of one resource and scope."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add(resource=_resource(resource))
    group.scope_spans.add(scope=InstrumentationScope(name=scope)).spans.extend(spans)
    body: bytes = request.SerializeToString()
    return body


def _span(trace: bytes, draft: SpanDraft) -> Span:
    parent = draft.parent_id
    return Span(
        trace_id=trace,
        span_id=draft.span_id.to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else parent.to_bytes(8, "big"),
        flags=SAMPLED_LOCAL | (PARENT_IS_REMOTE if draft.remote_parent else 0),
        name=_text(draft.name),
        kind=_KINDS[draft.kind],
        start_time_unix_nano=draft.start_unix_ns,
        end_time_unix_nano=draft.end_unix_ns,
        attributes=_attributes(draft.attributes),
        events=_events(draft),
        links=_links(draft),
        status=_ERROR if draft.error else None,
    )  # fmt: skip


def _events(draft: SpanDraft) -> list[Any]:
    return [
        {"name": _text(name), "time_unix_nano": at, "attributes": _attributes(values)}
        for name, at, values in draft.events
    ]


def _links(draft: SpanDraft) -> list[Any]:
    return [
        {
            "trace_id": trace_id.to_bytes(16, "big"),
            "span_id": span_id.to_bytes(8, "big"),
            "attributes": _attributes(values),
        }
        for trace_id, span_id, values in draft.links
    ]


def logs_body(resource: Resource, scope: str, records: Sequence[LogRecordDraft]) -> bytes:
    """An ``ExportLogsServiceRequest`` of named events."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add(resource=_resource(resource))
    target = group.scope_logs.add(scope=InstrumentationScope(name=scope))
    for record in records:
        target.log_records.add(
            time_unix_nano=record.unix_ns,
            observed_time_unix_nano=record.unix_ns,
            event_name=record.event_name,
            attributes=_attributes(record.attributes),
        )
    body: bytes = request.SerializeToString()
    return body


def sums_body(
    resource: Resource,
    scope: str,
    start_unix_ns: int,
    now_unix_ns: int,
    sums: Sequence[tuple[str, Mapping[str, str], int]],
) -> bytes:
    """Cumulative monotonic sums: ``(name, attributes, value)`` since ``start_unix_ns``."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add(resource=_resource(resource))
    target = group.scope_metrics.add(scope=InstrumentationScope(name=scope))
    for name, attributes, value in sums:
        metric = target.metrics.add(name=name, unit="{item}")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = (
            AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        metric.sum.data_points.add(
            start_time_unix_nano=start_unix_ns,
            time_unix_nano=now_unix_ns,
            as_int=value,
            attributes=_attributes(attributes),
        )
    body: bytes = request.SerializeToString()
    return body


def _resource(resource: Resource) -> PbResource:
    made = PbResource(attributes=_attributes(resource.attributes))
    shorten_values(made.attributes, RESOURCE_VALUE_BYTES)
    return made


def _attributes(values: Mapping[str, object]) -> list[Any]:
    """Attributes as protobuf's constructors take them: mappings cost 0.4 of what messages do."""
    return [{"key": _text(key), "value": _any_value(value)} for key, value in values.items()]


def _any_value(value: object) -> dict[str, object]:
    if isinstance(value, str):
        return {"string_value": _text(value)}
    if isinstance(value, bool):
        return {"bool_value": value}
    if isinstance(value, int):
        return {"int_value": value} if -_INT <= value < _INT else {"string_value": str(value)}
    if isinstance(value, float):
        return {"double_value": value}
    if isinstance(value, bytes):
        return {"bytes_value": value}
    if isinstance(value, Mapping):
        return {"kvlist_value": {"values": _attributes({str(k): v for k, v in value.items()})}}
    if value is None:
        return {}
    if isinstance(value, Sequence):
        return {"array_value": {"values": [_any_value(item) for item in value]}}
    return {"string_value": _text(str(value))}


def _text(value: str) -> str:
    """``value`` with what UTF-8 cannot say (lone surrogates out of JSON) replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
