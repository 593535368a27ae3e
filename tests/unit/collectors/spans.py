"""Spans as JSON and protobuf, and what an answer says of them."""

from __future__ import annotations

import itertools

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW

fresh = itertools.count(1000)
"""A trace id for each test, since tests share a store."""


def one(trace: int, n: int = 1, start_ns: int = NOW, **more: object) -> ExportTraceServiceRequest:
    return request(span(n, start_ns, trace_id=trace.to_bytes(16, "big"), **more))


def json_span(trace: int, n: int = 1, **more: object) -> dict[str, object]:
    return {
        "traceId": f"{trace:032x}", "spanId": f"{n:016x}", "name": "s",
        "startTimeUnixNano": str(NOW), "endTimeUnixNano": str(NOW + 1_000), **more,
    }  # fmt: skip


def json_request(*spans: object) -> dict[str, object]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def rejected(answer) -> int:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        return int(answer.json().get("partialSuccess", {}).get("rejectedSpans", "0"))
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert bool(partial.error_message) == bool(partial.rejected_spans)
    return partial.rejected_spans
