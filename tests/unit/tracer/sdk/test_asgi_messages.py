"""The middleware between a server and an application that use all that ASGI allows."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import urllib.request

from tests.support.otlp_peer import otlp_peer
from tests.support.programs import free_port
from tracer import semconv
from tracer.asgi import TRACE_ID_HEADER, StagelensMiddleware
from tracer.clock import SystemClock
from tracer.testing import recording, spans_as_tree


async def test_an_answers_headers_may_be_of_any_kind_and_a_server_may_send_the_file():
    """Headers that can be read once reach the server whole; ``pathsend`` is the answer's end."""
    sent: list[dict] = []

    async def app(scope, receive, send):
        headers = ((name, b"1") for name in (b"a", b"b"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.pathsend", "path": "/x"})

    async def send(message):
        sent.append({**message, "headers": list(message.get("headers", ()))})

    async def receive():
        return {"type": "http.request"}

    scope = {"type": "http", "path": "/x", "method": "GET", "headers": []}
    with recording(SystemClock()) as seen:
        await StagelensMiddleware(app)(scope, receive, send)
    assert sent[0]["headers"] == [(b"a", b"1"), (b"b", b"1")]
    assert seen.spans[0].attributes[semconv.STATUS] == "ok"


async def test_a_method_that_a_client_made_up_is_not_recorded():
    """It is the client's own word: neither the span's name nor an attribute."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def send(_message):
        return

    scope = {"type": "http", "path": "/x", "method": "CANARY", "headers": []}
    with recording(SystemClock()) as seen:
        await StagelensMiddleware(app)(scope, app, send)
    [span] = seen.spans
    assert (span.name, span.attributes[semconv.HTTP_REQUEST_METHOD]) == ("HTTP", "_OTHER")
    assert "CANARY" not in span.to_json()


APP = """
import os
import tracer
from tracer.asgi import TRACE_ID_HEADER, StagelensMiddleware

tracer.configure("shop")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})

app = StagelensMiddleware(app)
"""


def test_uvicorns_workers_each_send_their_own_spans(tmp_path):
    """Two workers: every request once, whoever answered, also the last before the server stops."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(APP))
    port = free_port()
    with otlp_peer() as peer:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "shop:app", "--workers", "2", "--port", str(port)],
            cwd=tmp_path, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path), "OTEL_EXPORTER_OTLP_ENDPOINT": peer.url},
        )  # fmt: skip
        asked = 0
        try:
            for _ in range(600):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                        answer.read()
                    asked += 1
                except OSError:
                    assert server.poll() is None
                    time.sleep(0.05)
                if asked == 20:
                    break
        finally:
            server.terminate()
            server.wait(30)
        sent = peer.spans()
    assert (asked, len(sent)) == (20, 20)
    assert len({span.span_id for span in sent}) == 20


async def _answers(_scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x"})


async def _asked(app) -> list:
    sent: list = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    await app(scope, receive, send)
    assert "stagelens.exchange" not in scope
    return sent


async def test_a_middleware_inside_another_joins_its_request():
    inner = StagelensMiddleware(_answers, trace_id_header=True)
    with recording() as seen:
        head, _ = await _asked(StagelensMiddleware(inner))
    [span] = seen.spans
    assert dict(head["headers"])[TRACE_ID_HEADER] == f"{span.context.trace_id:032x}".encode()


async def test_another_application_asked_within_a_request_has_a_record_of_its_own():
    async def asks(scope, receive, send):
        await _asked(StagelensMiddleware(_answers))
        await _answers(scope, receive, send)

    with recording() as seen:
        await _asked(StagelensMiddleware(asks))
    assert spans_as_tree(seen.spans) == {"GET": {"GET": {}}}
    assert [semconv.E2E_NS in span.attributes for span in seen.spans] == [True, True]
