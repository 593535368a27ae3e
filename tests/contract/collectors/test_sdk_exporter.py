"""The real senders, OpenTelemetry's SDK and our own, are understood by the real receiver."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tests.support.clock import FakeClock
from tests.unit.collectors.live_receiver import (
    NOW,
    SECOND,
    LiveReceiver,
    live_receiver,
    own_database,
)
from tracer import semconv
from tracer.export import OtlpExporter
from tracer.export_settings import ExportSettings, SpanGroup
from tracer.otlp import LogRecordDraft
from tracer.spans import SpanDraft

STEP: dict[str, str | bool | int | float] = {
    semconv.MODEL: "m", semconv.STEP_ENGINE: 1, semconv.STEP_DURATION_NS: 2**40,
    semconv.STEP_PREFILL_REQUESTS: 2, semconv.STEP_PREFILL_TOKENS: 3,
    semconv.STEP_DECODE_REQUESTS: 4, semconv.STEP_DECODE_TOKENS: 5, semconv.STEP_RUNNING: 6,
    semconv.STEP_WAITING: 7, semconv.STEP_KV_CACHE_USAGE: 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    with own_database(engine) as store, live_receiver(store) as made:
        yield made


def resource(name: str) -> Resource:
    return Resource({semconv.SERVICE_NAME: name, semconv.SERVICE_INSTANCE_ID: f"{name}-1"})


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.NoCompression, Compression.Deflate])
def test_spans_of_the_sdk_are_stored_with_their_values(live, compression):
    """TracerProvider, BatchSpanProcessor and OTLPSpanExporter, as any application has them."""
    name = f"sdk-{compression.value}"
    provider = TracerProvider(resource=resource(name))
    exporter = OTLPSpanExporter(endpoint=f"{live.url}/v1/traces", compression=compression)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("scope", "1.2")
    other = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))
    root = tracer.start_span("root", kind=SpanKind.SERVER, start_time=NOW, links=[Link(other, {"l": 1})])
    root.set_attributes({"int": 2**53 + 1, "float": 0.25, "bool": True, "text": "é", "list": [1, 2]})
    root.add_event("happened", {"n": 1}, timestamp=NOW + 5)
    root.set_status(Status(StatusCode.ERROR, "why"))
    from opentelemetry.trace import set_span_in_context

    child = tracer.start_span("child", context=set_span_in_context(root), start_time=NOW + 1)
    child.end(NOW + 11)
    root.end(NOW + 1_000_000_001)
    assert provider.force_flush(10_000)
    provider.shutdown()
    context = root.get_span_context()
    rows = {str(row["SpanName"]): row for row in live.spans(context.trace_id)}
    expected = {
        "SpanId": f"{context.span_id:016x}", "ParentSpanId": "", "SpanKind": "Server",
        "ServiceName": name, "ScopeName": "scope", "ScopeVersion": "1.2", "StartNs": NOW,
        "Duration": 1_000_000_001, "StatusCode": "Error", "StatusMessage": "why",
        "SpanAttributes": {"int": str(2**53 + 1), "float": "0.25", "bool": "true", "text": "é",
                           "list": "[1, 2]"},
        "Events.Name": ["happened"], "Events.Attributes": [{"n": "1"}],
        "Links.TraceId": [f"{0xABC:032x}"], "Links.SpanId": [f"{0xDEF:016x}"],
        "Links.Attributes": [{"l": "1"}],
    }  # fmt: skip
    assert {key: rows["root"][key] for key in expected} == expected
    assert rows["child"]["ParentSpanId"] == expected["SpanId"]
    assert (rows["child"]["SpanKind"], rows["child"]["StatusCode"]) == ("Internal", "Unset")


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
def test_spans_of_the_sdks_grpc_exporter_are_stored(live, compression):
    """The other half of the SDK's exporters, as OTEL_EXPORTER_OTLP_PROTOCOL=grpc makes them."""
    name = f"sdk-grpc-{compression.name}"
    to = {"endpoint": live.grpc, "insecure": True, "compression": compression}
    provider = TracerProvider(resource=resource(name))
    provider.add_span_processor(BatchSpanProcessor(GrpcSpanExporter(**to)))
    span = provider.get_tracer("scope").start_span("over gRPC", start_time=NOW)
    span.end(NOW + 5)
    assert provider.force_flush(10_000)
    provider.shutdown()
    (row,) = live.spans(span.get_span_context().trace_id)
    assert (row["SpanName"], row["ServiceName"], row["Duration"]) == ("over gRPC", name, 5)
    exporter = GrpcSpanExporter(**to)
    old = TracerProvider(resource=resource(name)).get_tracer("s").start_span("old", start_time=1)
    old.end(2)
    assert exporter.export([old]) is SpanExportResult.SUCCESS  # rejected alone: not to be retried
    exporter.shutdown()
    assert live.settle()["spans"]["refused"]["older_than_ttl"] >= 1


def sent(live: LiveReceiver, name: str) -> OtlpExporter:
    clock = FakeClock(unix_ns=NOW)
    return OtlpExporter(ExportSettings(live.url, interval_s=0.01, queue_items=3), resource(name), clock)


def spans_of(name: str, count: int) -> SpanGroup:
    made = [SpanDraft(f"{name} {n}", n + 1, None, NOW + n, NOW + n + 7) for n in range(count)]
    return SpanGroup(7, count, lambda: made)


def test_our_own_exporter_delivers_spans_steps_and_its_losses(live, caplog):
    """Spans to otel_traces, steps to engine_steps and nowhere else, loss sums to otel_metrics_sum."""
    caplog.set_level(logging.CRITICAL)
    exporter = sent(live, "own")
    for _ in range(5):  # the queue holds three: two groups are lost before the thread starts
        exporter.put_spans(spans_of("own", 2))
    for n in range(4):
        step = {**STEP, semconv.STEP_ENGINE: n}
        exporter.put_step(LogRecordDraft(semconv.EVENT_ENGINE_STEP, NOW + n, step))
    exporter.start()
    assert not exporter.close(10)
    losses = exporter.losses()
    assert losses["spans"] == {"received": 10, "sent": 6, "in_flight": 0, "dropped": {"queue_full": 4}}
    spans = live.rows("SELECT SpanName, Duration FROM {db}.otel_traces WHERE ServiceName = 'own'")
    assert sorted((row["SpanName"], row["Duration"]) for row in spans) == [
        (f"own {n}", 7) for n in (0, 0, 0, 1, 1, 1)
    ]
    steps = live.rows(
        "SELECT * EXCEPT Timestamp, toUnixTimestamp64Nano(Timestamp) AS at FROM {db}.engine_steps "
        "WHERE ServiceName = 'own' ORDER BY Engine"
    )
    assert [(row["Engine"], row["at"]) for row in steps] == [(n, NOW + n) for n in range(3)]
    expected = {
        "ServiceInstance": "own-1", "Model": "m", "DurationNs": 2**40, "PrefillRequests": 2,
        "PrefillTokens": 3, "DecodeRequests": 4, "DecodeTokens": 5, "Running": 6, "Waiting": 7,
        "KvCacheUsage": 0.5,
    }  # fmt: skip
    assert {key: steps[0][key] for key in expected} == expected
    assert live.rows("SELECT count() AS n FROM {db}.otel_logs")[0]["n"] == 0
    sums = live.rows(
        "SELECT MetricName AS name, Attributes AS a, argMax(Value, TimeUnix) AS v, "
        "any(ResourceAttributes['service.instance.id']) AS i, any(IsMonotonic) AS m, "
        "any(AggregationTemporality) AS t FROM {db}.otel_metrics_sum "
        "WHERE ServiceName = 'own' GROUP BY ALL ORDER BY name"
    )
    assert [(row["name"], row["a"], row["v"]) for row in sums] == [
        (semconv.METRIC_SPANS_DROPPED, {"reason": "queue_full"}, 4.0),
        (semconv.METRIC_SPANS_RECEIVED, {}, 10.0),
        (semconv.METRIC_SPANS_SENT, {}, 6.0),
        (semconv.METRIC_STEPS_DROPPED, {"reason": "queue_full"}, 1.0),
    ]
    assert all((row["i"], row["m"], row["t"]) == ("own-1", True, 2) for row in sums)


def test_what_the_receiver_rejects_our_exporter_counts_as_dropped(live, caplog):
    """A partial success is read: a step of nonsense and a span of no time are the sender's losses."""
    caplog.set_level(logging.CRITICAL)
    exporter = sent(live, "bad")
    old = SpanDraft("old", 1, None, NOW - 100 * 86_400 * SECOND, NOW)
    exporter.put_spans(SpanGroup(7, 1, lambda: [old]))
    exporter.put_step(LogRecordDraft(semconv.EVENT_ENGINE_STEP, NOW, {**STEP, semconv.STEP_RUNNING: -1}))
    exporter.start()
    assert not exporter.close(10)
    for kind in ("spans", "steps"):
        assert exporter.losses()[kind]["dropped"] == {"rejected": 1}
    assert live.rows("SELECT count() AS n FROM {db}.engine_steps WHERE ServiceName = 'bad'")[0]["n"] == 0
    assert live.settle()["logs"]["refused"] == {"bad_step": 1}
