"""OTLP/gRPC: the same bodies, checks and answers as over HTTP, in gRPC's words."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collectors.receive.grpc_server import GZIP, SERVICES
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW, LiveReceiver, live_receiver, own_database
from tests.unit.collectors.spans import fresh, one

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    with own_database(engine) as store, live_receiver(store, max_body_bytes=LIMIT) as made:
        yield made


def export(live: LiveReceiver, body: bytes, signal: str = "spans", **call: object) -> bytes:
    """One call with raw bytes, as any client may send them."""
    with grpc.insecure_channel(live.grpc) as channel:
        method = channel.unary_unary(f"/{SERVICES[signal]}/Export")
        answer: bytes = method(body, timeout=20, **call)
        return answer


def refusal(live: LiveReceiver, body: bytes, **call: object) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as problem:
        export(live, body, **call)
    return problem.value


def retry_s(problem: grpc.RpcError) -> int | None:
    """RetryInfo's delay, or None where there is none."""
    told = dict(problem.trailing_metadata()).get("grpc-status-details-bin", b"")
    for detail in Status.FromString(told).details:
        info = RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.seconds
    return None


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_spans_are_stored_plain_and_packed(live, compression):
    """gRPC's own compression; success says nothing of rejects."""
    trace = next(fresh)
    answer = export(live, one(trace, name="g" * 500).SerializeToString(), compression=compression)
    assert answer == b""
    assert [row["SpanName"] for row in live.spans(trace)] == ["g" * 500]


def test_logs_and_metrics_have_their_services(live):
    """All three signals; an empty request is a success."""
    logs, metrics = ExportLogsServiceRequest(), ExportMetricsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW)
    record.body.string_value = "over gRPC"
    point = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="over_grpc").gauge.data_points
    point.add(time_unix_nano=NOW, as_int=3)
    assert ExportLogsServiceResponse.FromString(export(live, logs.SerializeToString(), "logs")) == (
        ExportLogsServiceResponse()
    )
    answer = export(live, metrics.SerializeToString(), "metrics")
    assert ExportMetricsServiceResponse.FromString(answer) == ExportMetricsServiceResponse()
    assert export(live, b"") == b""
    assert live.rows("SELECT Body FROM {db}.otel_logs WHERE Body = 'over gRPC'") == [{"Body": "over gRPC"}]
    assert live.rows("SELECT Value FROM {db}.otel_metrics_gauge WHERE MetricName = 'over_grpc'") == [
        {"Value": 3.0}
    ]


def test_a_bad_span_is_rejected_alone(live):
    """Partial success with a number and a reason; the rest is stored."""
    trace = next(fresh)
    spans = [span(n, NOW, trace_id=trace.to_bytes(16, "big")) for n in (1, 2, 3)]
    spans[1].span_id = b""
    partial = ExportTraceServiceResponse.FromString(
        export(live, request(*spans).SerializeToString())
    ).partial_success
    assert (partial.rejected_spans, partial.error_message) == (1, "rejected 1 (bad_span_id: 1)")
    assert len(live.spans(trace)) == 2


def test_what_is_no_request_must_not_be_sent_again(live):
    """INVALID_ARGUMENT, with a message and without RetryInfo."""
    problem = refusal(live, b"\xff\xff\xff")
    assert problem.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ExportTraceServiceRequest" in problem.details()
    assert retry_s(problem) is None


@pytest.mark.parametrize(
    "body",
    [
        one(1, name="x" * (2 * LIMIT)).SerializeToString(),
        gzip.compress(bytes(1 << 30), 1),
        one(1, name="x" * (LIMIT + 100)).SerializeToString(),
    ],
    ids=["large", "bomb", "a little too large"],
)
def test_too_large_is_said_and_not_to_be_sent_again(live, body):
    """RESOURCE_EXHAUSTED without RetryInfo, also for what is small only while it is packed."""
    problem = refusal(live, body)
    assert problem.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_s(problem) is None


def test_a_bomb_packed_by_grpc_itself_is_refused(live):
    """The core does not unpack it before it can be refused."""
    problem = refusal(live, bytes(64 * LIMIT), compression=grpc.Compression.Gzip)
    assert problem.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_full_queue_asks_to_come_again(engine):
    """UNAVAILABLE with RetryInfo: the sender keeps its spans."""
    with own_database(engine) as store, live_receiver(store) as live:
        live.receiver.app._writer.stop(0)
        problem = refusal(live, one(next(fresh)).SerializeToString())
    assert problem.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_s(problem) == 1


def test_another_method_is_not_known(live):
    """UNIMPLEMENTED, as gRPC has it."""
    with grpc.insecure_channel(live.grpc) as channel, pytest.raises(grpc.RpcError) as problem:
        channel.unary_unary(f"/{SERVICES['spans']}/Import")(b"", timeout=20)
    assert problem.value.code() is grpc.StatusCode.UNIMPLEMENTED


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=300)
    | st.builds(gzip.compress, st.binary(max_size=100))
    | st.builds(lambda b: GZIP + b, st.binary(max_size=100)),
    signal=st.sampled_from(sorted(SERVICES)),
    packed=st.sampled_from(list(grpc.Compression)),
)
def test_any_bytes_are_answered_and_never_with_a_fault_of_ours(live, body, signal, packed):
    """OK or INVALID_ARGUMENT: never UNKNOWN, INTERNAL or anything that is sent again."""
    try:
        export(live, body, signal, compression=packed)
    except grpc.RpcError as problem:
        assert problem.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017
