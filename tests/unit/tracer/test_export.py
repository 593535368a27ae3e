"""The exporter never blocks its caller and accounts for every item."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.resources import Resource

from tracer.clock import SystemClock
from tracer.export import OtlpExporter
from tracer.export_settings import ExportSettings, SpanGroup
from tracer.otlp import LogRecordDraft
from tracer.spans import SpanDraft

RESOURCE = Resource({"service.name": "test"})


class Peer:
    """A real HTTP server that answers as told and keeps what it got."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.answers: list[tuple[int, bytes]] = []
        self.hold = threading.Event()
        self.hold.set()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                peer.hold.wait(10)
                scripted = peer.answers if self.path == "/v1/traces" else []
                code, answer = scripted.pop(0) if scripted else (200, b"")
                if code == 200:
                    peer.bodies.setdefault(self.path, []).append(body)
                self.send_response(code)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> list[str]:
        found = []
        for body in self.bodies.get("/v1/traces", []):
            request = ExportTraceServiceRequest.FromString(body)
            found += [
                s.name for r in request.resource_spans for sc in r.scope_spans for s in sc.spans
            ]
        return found


@pytest.fixture
def peer() -> Iterator[Peer]:
    one = Peer()
    yield one
    one.hold.set()
    one.server.shutdown()
    one.server.server_close()


def group(name: str, count: int = 1) -> SpanGroup:
    drafts = [SpanDraft(name, i + 1, None, 10, 20) for i in range(count)]
    return SpanGroup(7, count, lambda: drafts)


def exporter(url: str, **settings: float) -> OtlpExporter:
    made = OtlpExporter(
        ExportSettings(url, interval_s=0.02, **settings),  # type: ignore[arg-type]
        RESOURCE,
        SystemClock(),
    )
    made.start()
    return made


def test_spans_arrive_and_are_counted(peer):
    """What is put in comes out at the peer, and nothing is left in flight after a flush."""
    one = exporter(peer.url)
    one.put_spans(group("a", 3))
    assert one.flush(5)
    assert peer.spans() == ["a", "a", "a"]
    assert one.losses()["spans"] == {"received": 3, "sent": 3, "in_flight": 0, "dropped": {}}
    assert one.close(5)


@pytest.mark.skipif(
    "event_name" not in LogRecord.DESCRIPTOR.fields_by_name, reason="the server's extra asks for 1.35"
)
def test_engine_steps_arrive_beside_spans(peer):
    """Each with its name, its time and its attributes."""
    one = exporter(peer.url)
    one.put_spans(group("a", 3))
    one.put_step(LogRecordDraft("stagelens.engine.step", 5, {"n": 1, "x": 0.5, "s": "t"}))
    assert one.flush(5)
    log = ExportLogsServiceRequest.FromString(peer.bodies["/v1/logs"][0])
    record = log.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.event_name, record.time_unix_nano) == ("stagelens.engine.step", 5)
    assert one.losses()["spans"] == {"received": 3, "sent": 3, "in_flight": 0, "dropped": {}}
    assert one.close(5)


def test_a_full_queue_drops_the_newest_counts_it_and_never_blocks(peer):
    """With the peer stalled, puts return at once and every loss has its reason (faults 56)."""
    peer.hold.clear()
    one = exporter(peer.url, queue_items=10, batch_items=1)
    began = time.monotonic()
    for _ in range(500):
        one.put_spans(group("x", 2))
    assert time.monotonic() - began < 10
    peer.hold.set()
    assert one.flush(10)
    counts = one.losses()["spans"]
    assert counts["received"] == 1000
    assert counts["sent"] + counts["dropped"]["queue_full"] == 1000
    assert len(peer.spans()) == counts["sent"]
    one.close(5)


def test_a_retryable_refusal_is_retried_and_a_final_one_is_not(peer):
    """503 is sent again and lands once; 400 is dropped as refused."""
    peer.answers = [(503, b""), (200, b""), (400, b"")]
    one = exporter(peer.url, metrics_every_s=1000)
    one.put_spans(group("first"))
    assert one.flush(5)
    one.put_spans(group("second"))
    assert one.flush(5)
    assert peer.spans() == ["first"]
    assert one.losses()["spans"]["dropped"] == {"refused": 1}
    one.close(1)


def test_a_partial_success_counts_the_rejected_spans(peer):
    """A peer that takes 2 of 3 spans: 2 sent, 1 dropped as rejected."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 1
    peer.answers = [(200, answer.SerializeToString())]
    one = exporter(peer.url, metrics_every_s=1000)
    one.put_spans(group("p", 3))
    assert one.flush(5)
    assert one.losses()["spans"]["sent"] == 2
    assert one.losses()["spans"]["dropped"] == {"rejected": 1}
    one.close(1)


def test_closing_with_an_unreachable_collector_keeps_its_deadline_and_counts(peer):
    """Port refuses or never answers: close returns in time and all spans are counted (faults 53)."""
    peer.hold.clear()
    for url in ("http://127.0.0.1:9", peer.url):
        one = exporter(url)
        for _ in range(10):
            one.put_spans(group("lost"))
        assert not one.flush(0.3)
        began = time.monotonic()
        one.close(1.0)
        assert time.monotonic() - began < 8
        counts = one.losses()["spans"]
        assert counts["received"] == 10
        assert sum(counts["dropped"].values()) + counts["in_flight"] == 10


def test_losses_are_told_to_the_collector_as_cumulative_sums(peer):
    """The collector hears what never reached it, once it can be reached."""
    peer.answers = [(400, b"")]
    one = exporter(peer.url, metrics_every_s=1000)
    one.put_spans(group("gone", 4))
    assert one.flush(5)
    one.close(5)
    sums = {}
    for body in peer.bodies["/v1/metrics"]:
        request = ExportMetricsServiceRequest.FromString(body)
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            sums[metric.name] = metric.sum.data_points[0].as_int
            assert metric.sum.is_monotonic
    assert sums["stagelens.export.spans.received"] == 4
    assert sums["stagelens.export.spans.dropped"] == 4


def test_spans_that_cannot_be_built_are_counted_and_do_not_stop_the_others(peer):
    """One bad record costs its own spans and no more."""

    def bad():
        raise ValueError("no")

    one = exporter(peer.url)
    one.put_spans(SpanGroup(7, 2, bad))
    one.put_spans(group("good"))
    assert one.flush(5)
    assert peer.spans() == ["good"]
    assert one.losses()["spans"]["dropped"] == {"build_failed": 2}
    one.close(5)


def test_lifecycle_closing_twice_or_before_start_is_safe(peer):
    """Close is safe before start and twice; what comes after it is counted as closed."""
    never = OtlpExporter(ExportSettings(peer.url), RESOURCE, SystemClock())
    assert never.close(1)
    one = exporter(peer.url)
    assert one.close(1)
    assert one.close(1)
    one.put_spans(group("late"))
    assert one.losses()["spans"]["dropped"] == {"closed": 1}
