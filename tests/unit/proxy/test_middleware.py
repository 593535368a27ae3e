"""Over real sockets: the client's answer is untouched and every request leaves one record."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from proxy.recorder import EngineLoad
from proxy.request.live import CURRENT
from tests.support.live_server import live_server
from tracer import semconv
from tracer.clock import SystemClock

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
PATH = "/v1/chat/completions"


class Script:
    """An application whose steps a test opens one by one."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.cancelled = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post(PATH)
        async def chat(request: Request):
            body = await request.json()
            if body.get("fail"):
                raise RuntimeError("CANARY in the message")
            if not body.get("stream"):
                await self._hold()
                return {"ok": True}
            return StreamingResponse(self._stream(), media_type="text/event-stream")

        @app.get("/health")
        async def health() -> dict[str, str]:
            return {}

        return app

    async def _hold(self) -> None:
        self.started.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _stream(self):
        yield ROLE
        yield CHUNK
        await self._hold()
        yield CHUNK
        yield b"data: [DONE]\n\n"


async def test_a_stream_passes_untouched_and_chunk_by_chunk():
    """The client has the first token while the answer still waits, and gets the exact bytes."""
    script = Script()
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        got = b""
        async with client.stream("POST", server.url + PATH, json={"stream": True}) as answer:
            async for part in answer.aiter_raw():
                got += part
                if got.endswith(CHUNK) and not script.gate.is_set():
                    script.gate.set()
        assert got == ROLE + CHUNK + CHUNK + b"data: [DONE]\n\n"
        [root] = await server.sink.wait_for(1)
    assert root[semconv.STATUS] == "ok"
    assert root[semconv.STREAM] is True
    assert root[semconv.HTTP_ROUTE] == PATH
    assert 0 < root[semconv.FIRST_CHUNK_NS] <= root[semconv.FIRST_TOKEN_NS] < root[semconv.E2E_NS]
    assert answer.headers["x-stagelens-trace-id"] == f"{server.sink.requests[0][0].context.trace_id:032x}"


async def test_the_callers_trace_is_joined_and_a_bad_header_starts_a_new_one():
    """W3C traceparent in: same trace, remote parent; all zeros or garbage are ignored."""
    script = Script()
    script.gate.set()
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        for header in (good, f"00-{'0' * 32}-b7ad6b7169203331-01", "nonsense"):
            await client.post(server.url + PATH, json={}, headers={"traceparent": header})
        await server.sink.wait_for(3)
        roots = [spans[0] for spans in server.sink.requests]
    assert f"{roots[0].context.trace_id:032x}" == good[3:35]
    assert f"{roots[0].parent.span_id:016x}" == good[36:52]
    assert roots[0].parent.is_remote
    assert roots[1].parent is None
    assert roots[2].parent is None
    assert len({r.context.trace_id for r in roots}) == 3


async def test_an_answer_of_a_told_length_ends_with_its_last_byte():
    """What the application does between that byte and saying that there is no more is not its time."""
    gate, seen = asyncio.Event(), []

    async def app(_scope, _receive, send):
        seen.append(CURRENT.get())
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
        await send(head)
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        await send({"type": "http.response.body", "body": b"cd", "more_body": True})
        await gate.wait()
        seen.append(SystemClock().mono_ns())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with live_server(mounted(app)) as server, httpx.AsyncClient() as client:
        answer = await client.post(server.url + PATH, json={})
        gate.set()
        await server.sink.wait_for(1)
    live, opened_mono_ns = seen
    assert answer.content == b"abcd"
    assert live.start_mono_ns < live.end_mono_ns < opened_mono_ns


def mounted(app) -> FastAPI:
    """A bare ASGI application below one that answers the server's start and stop."""
    outer = FastAPI()
    outer.mount("/", app)
    return outer


async def test_two_traceparent_headers_are_as_good_as_none():
    """W3C: a request with more than one starts a trace of its own; the last does not win."""
    script = Script()
    script.gate.set()
    headers = [("traceparent", f"00-{n * 32}-b7ad6b7169203331-01") for n in "ab"]
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        await client.post(server.url + PATH, json={}, headers=headers)
        await server.sink.wait_for(1)
    [[root, *_]] = server.sink.requests
    assert root.parent is None
    assert f"{root.context.trace_id:032x}"[:3] not in ("aaa", "bbb")


async def test_an_answer_that_nobody_could_get_has_no_status_code():
    """The client left before the application answered: no HTTP status was ever sent."""
    left = asyncio.Event()

    async def app(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            left.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async with live_server(mounted(app)) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(left.wait(), 5)
        writer.close()
        [root] = await server.sink.wait_for(1, within_s=3)
    assert root[semconv.STATUS] == "cancelled"
    assert semconv.HTTP_RESPONSE_STATUS_CODE not in root


async def test_an_error_type_in_http_words_is_kept_and_free_text_is_not():
    """vLLM says ``Bad Request``; free text might quote a prompt."""
    kinds = ["Bad Request", "prompt CANARY refused"]

    async def app(scope, receive, send):
        body = json.dumps({"error": {"type": kinds.pop(0), "message": "m"}}).encode()
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with live_server(mounted(app)) as server, httpx.AsyncClient() as client:
        for _ in range(2):
            await client.post(server.url + PATH, json={})
        roots = await server.sink.wait_for(2)
    assert [r[semconv.ERROR_TYPE] for r in roots] == ["Bad Request", "400"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_the_work_and_leaves_one_cancelled_record(stream):
    """Streamed or not: the handler is cancelled at once, status cancelled (faults 38)."""
    script = Script()
    async with live_server(script.app()) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = json.dumps({"stream": stream}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        await script.started.wait()
        writer.close()
        [root] = await server.sink.wait_for(1, within_s=3)
        await asyncio.sleep(0)
        assert len(server.sink.requests) == 1
        assert server.recorder.in_flight == 0
    assert root[semconv.STATUS] == "cancelled"
    assert root[semconv.ERROR_TYPE] == "client_disconnect"


async def test_a_no_op_middleware_inside_does_not_hide_the_disconnect():
    """A convenience middleware between us and the handler changes nothing (faults 37)."""
    script = Script()
    app = script.app()

    @app.middleware("http")
    async def nothing(request, call_next):
        return await call_next(request)

    async with live_server(app) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 15\r\n\r\n{"stream":true}'
        )
        await script.started.wait()
        writer.close()
        [root] = await server.sink.wait_for(1, within_s=3)
    assert script.cancelled == 1
    assert root[semconv.STATUS] == "cancelled"


async def test_a_handlers_exception_is_an_error_record_without_its_message():
    """The type is kept, the text (it may quote a prompt) is nowhere in the spans (faults 65)."""
    script = Script()
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        answer = await client.post(server.url + PATH, json={"fail": True})
        [root] = await server.sink.wait_for(1)
        text = "".join(span.to_json() for span in server.sink.requests[0])
    assert answer.status_code == 500
    assert root[semconv.STATUS] == "error"
    assert root[semconv.ERROR_TYPE] == "RuntimeError"
    assert "CANARY" not in text


async def test_no_secret_of_the_request_reaches_a_span():
    """Keys in headers, cookies and the query stay out of the record (faults 64)."""
    script = Script()
    script.gate.set()
    headers = {
        "Authorization": "Bearer sk-CANARY1", "x-api-key": "CANARY2", "Cookie": "s=CANARY4",
        "x-stagelens-tags": "team=search, bad key=CANARY5,phase=c8",
    }  # fmt: skip
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        await client.post(server.url + PATH + "?api_key=CANARY6", json={}, headers=headers)
        [root] = await server.sink.wait_for(1)
        text = "".join(span.to_json() for span in server.sink.requests[0])
    assert "CANARY" not in text
    assert root[semconv.TAG_PREFIX + "team"] == "search"
    assert root[semconv.TAG_PREFIX + "phase"] == "c8"


async def test_the_time_limit_answers_504_or_an_error_event_and_records_a_timeout():
    """Before the response a 504 in OpenAI's form, inside a stream an error event."""
    script = Script()
    async with (
        live_server(script.app(), request_timeout_s=0.2) as server,
        httpx.AsyncClient() as client,
    ):
        plain = await client.post(server.url + PATH, json={})
        streamed = await client.post(server.url + PATH, json={"stream": True})
        roots = await server.sink.wait_for(2)
    assert plain.status_code == 504
    assert plain.json()["error"]["type"] == "timeout"
    assert streamed.content.startswith(ROLE + CHUNK)
    assert b'"type": "timeout"' in streamed.content
    assert [(r[semconv.STATUS], r[semconv.ERROR_TYPE]) for r in roots] == [("error", "timeout")] * 2
    assert script.cancelled == 2


async def test_the_time_limit_holds_for_a_client_that_does_not_read():
    """The record is there although the client still is, and its connection is broken off."""
    app = FastAPI()

    @app.post(PATH)
    async def chat():
        async def much():
            while True:
                yield CHUNK * 2000

        return StreamingResponse(much(), media_type="text/event-stream")

    async with live_server(app, request_timeout_s=0.3) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        [root] = await server.sink.wait_for(1, within_s=30)
        got = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                got = part
        writer.close()
    assert not got.endswith(b"0\r\n\r\n"), "a cut answer must not look whole"
    assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("error", "timeout")


async def test_shutdown_with_requests_in_flight_ends_each_with_one_record():
    """At the deadline running requests are cancelled; none is lost, the server stops."""
    script = Script()
    async with live_server(script.app()) as server, httpx.AsyncClient(timeout=30) as client:
        calls = [
            asyncio.create_task(client.post(server.url + PATH, json={"stream": i % 2 == 0}))
            for i in range(4)
        ]
        await script.started.wait()
        while server.recorder.in_flight < 4:  # noqa: ASYNC110  a count, not an event
            await asyncio.sleep(0.01)
        server.stop.set()
        assert await asyncio.wait_for(asyncio.shield(server.done), 10)
        roots = await server.sink.wait_for(4)
        answers = await asyncio.gather(*calls)
    assert [r[semconv.STATUS] for r in roots] == ["cancelled"] * 4
    assert [a.status_code for a in answers] == [200, 503, 200, 503]
    assert answers[1].json()["error"]["type"] == "shutdown"
    assert b'"type": "shutdown"' in answers[0].content
    assert {r[semconv.ERROR_TYPE] for r in roots} == {"shutdown"}


async def test_a_dead_engine_stops_the_server():
    """The server ends by itself and says that it was the engine."""
    dead: list[bool] = []
    async with live_server(Script().app(), engine_died=lambda: bool(dead)) as server:
        dead.append(True)
        assert await asyncio.wait_for(asyncio.shield(server.done), 5) is False


async def test_probes_are_not_recorded_and_unknown_paths_have_no_route():
    """/health leaves no record; a 404 leaves one without a high-cardinality route."""
    async with live_server(Script().app()) as server, httpx.AsyncClient() as client:
        await client.get(server.url + "/health")
        await client.get(server.url + "/no/such/path-123")
        [root] = await server.sink.wait_for(1)
    assert root[semconv.HTTP_RESPONSE_STATUS_CODE] == 404
    assert semconv.HTTP_ROUTE not in root


async def test_arrival_knows_the_load_and_the_cold_start():
    """Others in flight, the engine's running and waiting, and why a request was cold."""
    script = Script()
    async with (
        live_server(script.app(), load=lambda: EngineLoad(2, 5)) as server,
        httpx.AsyncClient() as client,
    ):
        held = asyncio.create_task(client.post(server.url + PATH, json={}))
        await script.started.wait()
        script.gate.set()
        await client.post(server.url + PATH, json={"stream": True})
        await held
        first, second = sorted(
            await server.sink.wait_for(2), key=lambda r: r[semconv.COLD_REASON]
        )
    assert first[semconv.COLD_REASON] == "first_request"
    assert second[semconv.COLD_REASON] == "startup"
    assert (first[semconv.RUNNING], first[semconv.WAITING]) == (2, 5)
    assert first[semconv.IN_FLIGHT] == 0


async def test_the_clock_starts_at_the_first_byte_not_at_the_end_of_the_headers():
    """A client that sends its headers slowly sees that time in the record."""
    script = Script()
    script.gate.set()
    async with live_server(script.app()) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n")
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.write(b"Host: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        [root] = await server.sink.wait_for(1)
        writer.close()
    assert root[semconv.E2E_NS] >= 290_000_000
    assert root["stagelens.stage.prompt_ns"] >= 290_000_000


async def test_the_limit_of_tags_is_for_the_request_not_for_each_header_line():
    """Many lines of many tags still give no more than the limit in all."""
    script = Script()
    script.gate.set()
    lines = [
        ("x-stagelens-tags", ",".join(f"t{line}-{n}=v" for n in range(16))) for line in range(40)
    ]
    async with live_server(script.app()) as server, httpx.AsyncClient() as client:
        await client.post(server.url + PATH, json={}, headers=lines)
        [root] = await server.sink.wait_for(1)
    assert len([name for name in root if name.startswith(semconv.TAG_PREFIX)]) == 16


@pytest.mark.parametrize(
    "behind",
    [b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /v1/chat/compl"],
)
@pytest.mark.parametrize("stream", [b'{"stream":true} ', b'{"stream":false}'])
async def test_bytes_pipelined_behind_a_request_do_not_hide_that_its_client_left(behind, stream):
    """A whole or begun next request on the connection: the running one is still cancelled."""
    script = Script()
    async with live_server(script.app()) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 16\r\n\r\n" + stream + behind
        )
        await script.started.wait()
        writer.close()
        [root] = await server.sink.wait_for(1, within_s=4)
    assert root[semconv.STATUS] == "cancelled"
    assert root[semconv.ERROR_TYPE] == "client_disconnect"
    assert script.cancelled == 1
