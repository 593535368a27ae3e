"""An OTLP/HTTP receiver on a free port that keeps what it gets, and refuses what is too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

USUAL_LIMIT = 4_194_304


class OtlpPeer:
    """``hold`` cleared: it accepts and does not answer. ``refused``: bodies over the limit."""

    def __init__(self, limit: int = USUAL_LIMIT) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.refused = 0
        self.asked = 0
        self.hold = threading.Event()
        self.hold.set()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                peer.asked += 1
                peer.hold.wait(30)
                too_long = len(body) > limit
                if too_long:
                    peer.refused += 1
                else:
                    peer.bodies.setdefault(self.path, []).append(body)
                try:
                    self.send_response(413 if too_long else 200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:  # the sender has given up
                    pass

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> list[Span]:
        return [
            span
            for body in list(self.bodies.get("/v1/traces", []))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def sums(self) -> dict[str, int]:
        """The last value of each sum, added up over its attributes."""
        found: dict[tuple[str, str], int] = {}
        for body in list(self.bodies.get("/v1/metrics", [])):
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.sum.data_points:
                            found[metric.name, str(point.attributes)] = point.as_int
        added: dict[str, int] = {}
        for (name, _), value in found.items():
            added[name] = added.get(name, 0) + value
        return added

    def raw(self) -> bytes:
        return b"".join(body for bodies in self.bodies.values() for body in bodies)

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def otlp_peer(limit: int = USUAL_LIMIT) -> Iterator[OtlpPeer]:
    one = OtlpPeer(limit)
    try:
        yield one
    finally:
        one.close()
