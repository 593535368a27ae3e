"""A real HTTP API of one operation that takes a fifth of a second, and its OpenAPI document."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DOCUMENT = {"openapi": "3.1.0", "paths": {"/nap": {"get": {"operationId": "nap"}}}}
DELAY_S = 0.2


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def parse_request(self) -> bool:
        self.came = time.monotonic_ns()
        return super().parse_request()

    def do_GET(self) -> None:
        self.server.parents.append(self.headers.get("traceparent", ""))  # type: ignore[attr-defined]
        began = time.monotonic_ns()
        time.sleep(DELAY_S)
        ended = time.monotonic_ns()
        body = b'{"slept": true}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        left = time.monotonic_ns()
        self.end_headers()
        self.wfile.write(body)
        self.server.times.append(  # type: ignore[attr-defined]
            {"kind": "openapi", "script": [began, ended], "door": [self.came, left]}
        )

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def slow_api(
    folder: Path, times: list[dict[str, object]] | None = None
) -> Iterator[tuple[str, Path, list[str]]]:
    """Its URL, its document's file, and the ``traceparent`` of each call; ``times`` gets what
    ``timed`` tells of other servers.
    """
    document = folder / "nap.json"
    document.write_text(json.dumps(DOCUMENT))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    parents: list[str] = []
    server.parents = parents  # type: ignore[attr-defined]
    server.times = [] if times is None else times  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", document, parents
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
