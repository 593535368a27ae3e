"""The three kinds of OTLP requests: how each is read, counted and answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collectors.receive.metric_rows import METRIC_COLUMNS, metric_batch
from collectors.receive.rows import (
    LOG_COLUMNS,
    STEP_COLUMNS,
    TRACE_COLUMNS,
    Batch,
    TimeWindow,
    log_batch,
    trace_batch,
)


@dataclass(frozen=True, slots=True)
class Signal:
    """How one path's bodies are read, counted and answered."""

    name: str
    request: type[Message]
    response: type[Message]
    rejected_field: str
    to_batch: Callable[[Any, TimeWindow], Batch]


SIGNALS = {
    "/v1/traces": Signal(
        "spans", ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans",
        trace_batch,
    ),
    "/v1/logs": Signal(
        "logs", ExportLogsServiceRequest, ExportLogsServiceResponse, "rejected_log_records",
        log_batch,
    ),
    "/v1/metrics": Signal(
        "metrics", ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        "rejected_data_points", metric_batch,
    ),
}  # fmt: skip
OF_NAME = {signal.name: signal for signal in SIGNALS.values()}
COLUMNS: dict[str, tuple[str, ...]] = {
    "otel_traces": TRACE_COLUMNS,
    "otel_logs": LOG_COLUMNS,
    "engine_steps": STEP_COLUMNS,
    **METRIC_COLUMNS,
}
"""What a row of each table holds, in order."""
