"""The middleware: one record a request, whose stages add up, whoever ends it."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

import tracer
from tests.support.otlp_peer import otlp_peer
from tests.support.plain_server import plain_server
from tracer import semconv
from tracer.asgi import StagelensMiddleware
from tracer.clock import SystemClock
from tracer.stages import Stage
from tracer.testing import Recorded, recording, spans_as_tree

MS = 1_000_000


def stages_of(span) -> dict[str, int]:
    told = {s: span.attributes[semconv.stage_ns(s)] for s in Stage}
    return {str(s): ns for s, ns in told.items() if ns}


async def until(true, within_s: float = 5) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110  spans have no event
            await asyncio.sleep(0.01)


def rag_app():
    """Retrieval 50 ms, prompt 20 ms, model 50 ms to its role, 50 to its first token, 3 tokens."""
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()
    app.add_middleware(StagelensMiddleware, trace_id_header=True, skip=("/health",))

    @tracer.retrieval(data_source="docs")
    async def search(query: str):
        await asyncio.sleep(0.05)
        return [{"id": "a"}]

    @tracer.llm("m")
    async def model(prompt: str):
        await asyncio.sleep(0.05)
        yield {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        await asyncio.sleep(0.05)
        for text in ("Hi", " ", "you"):
            yield {"choices": [{"delta": {"content": text}}]}
            await asyncio.sleep(0.05)
        yield {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}

    @app.post("/answer/{who}")
    async def answer(who: str) -> StreamingResponse:
        await search(who)
        with tracer.stage("prompt"):
            await asyncio.sleep(0.02)

        async def events():
            async for chunk in model("p"):
                yield f"data: {json.dumps(chunk)}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    @app.get("/health")
    async def health() -> str:
        return "ok"

    return app


async def test_a_streamed_answer_has_the_record_of_a_request():
    """Stages add up to the nanosecond; TTFT is the first token's, not the role's; joined trace."""
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with recording(SystemClock()) as seen:
        async with plain_server(rag_app()) as url, aiohttp.ClientSession() as client:
            headers = {"traceparent": caller}
            async with client.post(url + "/answer/me", headers=headers) as answer:
                await answer.read()
                trace_id = answer.headers["x-stagelens-trace-id"]
            async with client.get(url + "/health") as answer:
                await answer.read()
        await until(lambda: len(seen.spans) == 4)
    root = seen.named("POST /answer/{who}")
    told = root.attributes
    assert trace_id == f"{root.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{root.parent.span_id:016x}" == "b7ad6b7169203331"
    assert sum(stages_of(root).values()) == told[semconv.E2E_NS] == root.end_time - root.start_time
    stages = stages_of(root)
    assert stages["retrieval"] >= 50 * MS
    assert stages["prompt"] >= 20 * MS
    assert stages["decode"] >= 100 * MS
    assert stages["deliver"] >= 50 * MS
    assert told[semconv.FIRST_CHUNK_NS] < told[semconv.FIRST_TOKEN_NS] - 40 * MS
    assert told[semconv.FIRST_TOKEN_NS] >= 170 * MS
    assert told[semconv.FIRST_ANSWER_NS] == told[semconv.FIRST_TOKEN_NS]
    assert (told[semconv.STREAM], told[semconv.STATUS]) == (True, "ok")
    assert (told[semconv.HTTP_ROUTE], told[semconv.OPERATION]) == ("/answer/{who}", "invoke_workflow")
    call = seen.named("chat m").attributes
    assert (call[semconv.ITEMS], call["gen_ai.usage.output_tokens"]) == (3, 3)


async def call(app, *, seen: Recorded, method: str = "GET", **more: object):
    async with plain_server(StagelensMiddleware(app)) as url, aiohttp.ClientSession() as client:
        async with client.request(method, url + "/x", **more) as answer:  # type: ignore[arg-type]
            body = await answer.read()
        await until(lambda: seen.spans)
        return answer.status, body


async def test_a_plain_answer_has_no_first_token_clocks_and_no_operation():
    """Prompt until the body was read, deliver from the head on; TTFT is null, never the end."""

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    with recording(SystemClock()) as seen:
        assert await call(app, seen=seen, method="POST", data=b"x" * 100_000) == (200, b"ok")
    [span] = seen.spans
    told = span.attributes
    assert semconv.FIRST_TOKEN_NS not in told
    assert semconv.FIRST_CHUNK_NS not in told
    assert (told[semconv.STREAM], told[semconv.OPERATION]) == (False, "")
    assert set(stages_of(span)) == {"prompt", "deliver", "unattributed"}
    assert stages_of(span)["unattributed"] >= 50 * MS


@pytest.mark.parametrize("what", ["raises", "fails_late", "500", "404", "nothing"])
async def test_failures_are_told_with_their_kind(what):
    """A raised error is the server's; 4xx leaves the span's status unset, as the standard has it."""

    async def app(scope, receive, send):
        if what == "raises":
            raise LookupError("CANARY")
        if what == "nothing":
            return
        status = int(what) if what.isdigit() else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        if what == "fails_late":
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            raise LookupError("CANARY")
        await send({"type": "http.response.body", "body": b"a", "more_body": False})

    with recording(SystemClock()) as seen:
        try:
            await call(app, seen=seen)
        except aiohttp.ClientError:
            pass
        await until(lambda: seen.spans)
    [span] = seen.spans
    kinds = {"raises": "LookupError", "fails_late": "LookupError", "nothing": "response_incomplete"}
    assert span.attributes[semconv.STATUS] == "error"
    assert span.attributes[semconv.ERROR_TYPE] == kinds.get(what, what)
    assert span.status.is_ok is (what == "404")
    assert "CANARY" not in span.to_json()


@pytest.mark.parametrize("reads", [True, False], ids=["app_reads_body", "app_never_reads"])
async def test_a_client_that_leaves_ends_the_record_at_once(reads):
    """The application works on for long and asks for nothing: cancelled within 2 s all the same."""
    over = asyncio.Event()

    async def app(scope, receive, send):
        if reads:
            await receive()
        await over.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late", "more_body": False})

    with recording(SystemClock()) as seen:
        async with plain_server(StagelensMiddleware(app)) as url:
            async with aiohttp.ClientSession() as client:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.get(url + "/x"), 0.5)
            await until(lambda: seen.spans, 2)
            over.set()
            await asyncio.sleep(0.05)
    [span] = seen.spans
    assert span.attributes[semconv.STATUS] == "cancelled"
    assert span.attributes[semconv.ERROR_TYPE] == "client_disconnect"
    assert 400 * MS <= span.attributes[semconv.E2E_NS] <= 2000 * MS
    assert span.status.is_ok
    assert semconv.FIRST_TOKEN_NS not in span.attributes


async def test_a_client_that_leaves_a_stream_ends_it_and_the_models_span():
    """FastAPI's stream under a middleware of the convenience kind, left after the first part."""
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    @tracer.llm("m")
    async def model():
        yield "a"
        await asyncio.sleep(30)
        yield "b"

    @app.get("/x")
    async def stream() -> StreamingResponse:
        return StreamingResponse(model(), media_type="text/event-stream")

    @app.middleware("http")
    async def nothing(request: Request, call_next):
        return await call_next(request)

    app.add_middleware(StagelensMiddleware)
    with recording(SystemClock()) as seen:
        async with plain_server(app) as url, aiohttp.ClientSession() as client:
            answer = await client.get(url + "/x")
            assert await answer.content.readany() == b"a"
            answer.close()
            await until(lambda: len(seen.spans) == 2)
    root = seen.named("GET /x").attributes
    assert root[semconv.STATUS] == "cancelled"
    assert root[semconv.E2E_NS] < 5_000 * MS
    assert seen.named("chat m").status.is_ok


async def test_a_slow_reader_is_deliver_and_not_decode():
    """The client takes nothing for half a second in the middle of a stream of the model's."""

    @tracer.llm("m")
    async def model():
        for _ in range(30):
            yield "x" * 1_000_000

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async for text in model():
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with recording(SystemClock()) as seen:
        async with plain_server(StagelensMiddleware(app)) as url, aiohttp.ClientSession() as client:
            async with client.get(url + "/x") as answer:
                await asyncio.sleep(0.5)
                assert len(await answer.read()) == 30_000_000
            await until(lambda: len(seen.spans) == 2)
    stages = stages_of(seen.named("GET"))
    assert stages["deliver"] >= 300 * MS
    assert stages["decode"] < stages["deliver"]
    assert sum(stages.values()) == seen.named("GET").attributes[semconv.E2E_NS]
    assert seen.named("GET").attributes[semconv.stage_count(Stage.DECODE)] == 1


async def test_a_background_task_is_not_part_of_the_request():
    """Starlette runs it after the last byte, inside the same call of the application."""
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def later() -> None:
        with tracer.stage("later"):
            await asyncio.sleep(0.3)

    async def route(_request):
        return PlainTextResponse("ok", background=BackgroundTask(later))

    app = Starlette(routes=[Mount("/api", routes=[Route("/{x}", route)])])
    app.add_middleware(StagelensMiddleware)
    with recording(SystemClock()) as seen:
        async with plain_server(app) as url, aiohttp.ClientSession() as client:
            async with client.get(url + "/api/CANARY") as answer:
                await answer.read()
            await until(lambda: len(seen.spans) == 2)
    root, later_span = seen.spans
    assert later_span.end_time - root.end_time >= 300 * MS
    assert "CANARY" not in root.to_json()
    [name] = spans_as_tree(seen.spans)
    assert spans_as_tree(seen.spans) == {name: {"later": {}}}


async def test_requests_are_not_children_of_what_the_server_was_started_in():
    """A server started inside a span: each request is a trace of its own."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with recording(SystemClock()) as seen, tracer.trace("main"):
        await call(app, seen=seen)
        await call(app, seen=seen)
    assert spans_as_tree(seen.spans) == {"main": {}, "GET": {}, "GET#2": {}}
    assert len({s.context.trace_id for s in seen.spans}) == 3


async def test_a_server_span_of_the_framework_around_it_is_the_parent():
    """FastAPI's own and contrib's instrumentation: one trace, and the record below their span."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with recording(SystemClock()) as seen:
        framework = TracerProvider().get_tracer("framework")
        with framework.start_as_current_span("server", kind=SpanKind.SERVER) as around:
            await call(app, seen=seen)
    [ours] = [span for span in seen.spans if span.name == "GET"]
    assert ours.parent is not None
    assert ours.parent.span_id == around.get_span_context().span_id
    assert semconv.E2E_NS in ours.attributes


async def test_other_kinds_of_scopes_and_an_unconfigured_sdk_are_passed_on_untouched():
    """Websockets and the lifespan; without set-up the application gets the very same callables."""
    got: list[object] = []

    async def app(scope, receive, send):
        got.append((receive, send))

    wrapped = StagelensMiddleware(app)
    receive, send = object(), object()
    with recording() as seen:
        for kind in ("lifespan", "websocket"):
            await wrapped({"type": kind}, receive, send)  # type: ignore[arg-type]
    scope = {"type": "http", "path": "/", "method": "GET", "headers": []}
    await wrapped(scope, receive, send)  # type: ignore[arg-type]
    (of_server, _), *others = got
    assert of_server is receive
    assert others == [(receive, send)] * 2
    assert seen.spans == []


async def test_what_waits_is_sent_before_the_server_says_that_it_stops():
    """uvicorn ends the process by the signal that stopped it: nothing runs at exit."""
    told: list[str] = []

    async def app(scope, receive, send):
        await send({"type": "lifespan.startup.complete"})
        with tracer.stage("last"):
            pass
        await send({"type": "lifespan.shutdown.complete"})

    with otlp_peer() as peer:
        tracer.configure("shop", peer.url)
        try:

            async def send(message):
                told.append(f"{message['type']} {peer.names()}")

            await StagelensMiddleware(app)({"type": "lifespan"}, None, send)
        finally:
            tracer.shutdown()
    assert told == ["lifespan.startup.complete []", "lifespan.shutdown.complete ['last']"]
