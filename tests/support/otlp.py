"""OTLP messages for tests, small and readable."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def value(of: object) -> AnyValue:
    if isinstance(of, bool):
        return AnyValue(bool_value=of)
    if isinstance(of, int):
        return AnyValue(int_value=of)
    if isinstance(of, float):
        return AnyValue(double_value=of)
    if isinstance(of, (list, tuple)):
        made = AnyValue()
        made.array_value.values.extend(value(v) for v in of)
        return made
    return AnyValue(string_value=str(of))


def pairs(of: Mapping[str, object]) -> list[KeyValue]:
    return [KeyValue(key=k, value=value(v)) for k, v in of.items()]


def span(
    n: int, start_ns: int, attributes: Mapping[str, object] | None = None, **more: object
) -> Span:
    """Span number ``n`` of trace 1, one millisecond long."""
    fields = {
        "trace_id": (1).to_bytes(16, "big"),
        "span_id": n.to_bytes(8, "big"),
        "name": f"span {n}",
        "start_time_unix_nano": start_ns,
        "end_time_unix_nano": start_ns + 1_000_000,
        "attributes": pairs(attributes or {}),
        **more,
    }
    return Span(**fields)


def request(*spans: Span, **resource: object) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    group.resource.attributes.extend(
        pairs({"service.name": "svc", "service.instance.id": "i1", **resource})
    )
    group.scope_spans.add(spans=spans)
    return made


def record(model: str, start_ns: int, **more: object) -> ExportTraceServiceRequest:
    """A request's root span as the proxy sends it: a second long, all of it decode."""
    made = span(
        1, start_ns,
        {"stagelens.record.version": 1, "stagelens.model": model, "stagelens.operation": "chat",
         "stagelens.status": "ok", "stagelens.source": "engine", "stagelens.e2e_ns": 1_000_000_000,
         "stagelens.stage.decode_ns": 1_000_000_000, "stagelens.stage.decode_count": 1, **more},
        end_time_unix_nano=start_ns + 1_000_000_000,
    )  # fmt: skip
    return request(made)
