"""Section D, cases 40 to 46: what becomes of the span of a stream."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
import tracemalloc

import pytest

import tracer
from tests.support.live_server import live_server
from tracer import semconv
from tracer.clock import SystemClock
from tracer.testing import FakeClock, recording, spans_as_tree


class ClientStream:
    """A stream as clients' libraries have it: an iterator, closed or used with ``with``."""

    def __init__(self, items: list[str]) -> None:
        self._items = iter(items)
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self) -> str:
        return next(self._items)

    def close(self) -> None:
        self.closed += 1


class AsyncClientStream:
    """The same, asynchronous; its ``close`` is awaited, as the OpenAI client's is."""

    def __init__(self, items: list[str]) -> None:
        self._items = iter(items)
        self.closed = 0

    def __aiter__(self):
        return self

    async def __anext__(self) -> str:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        self.closed += 1


def generator():
    yield from ["a", "b", "c"]


async def async_generator():
    for item in ["a", "b", "c"]:
        yield item


MAKERS = [generator, lambda: ClientStream(["a", "b", "c"])]
ASYNC_MAKERS = [async_generator, lambda: AsyncClientStream(["a", "b", "c"])]
HOWS = ["with_break", "close", "close_twice", "drop", "read_inside_with"]


@pytest.mark.parametrize("make", MAKERS, ids=["generator", "client"])
@pytest.mark.parametrize("how", HOWS)
def test_40_each_way_to_leave_a_stream_leaves_one_span_with_the_text_so_far(make, how, caplog):
    """Break, close, drop, read to the end and close again: one span, and no warning of it."""
    with recording(capture_content=True) as seen, caplog.at_level(logging.WARNING):
        stream = tracer.llm("m")(make)()
        whole = how == "read_inside_with"
        if how in ("with_break", "read_inside_with"):
            with stream as inside:
                for _ in inside:
                    if not whole:
                        break
        else:
            next(stream)
            if how != "drop":
                stream.close()
            if how == "close_twice":
                stream.close()
        del stream
        gc.collect()
    [span] = seen.spans
    text = "abc" if whole else "a"
    assert f'"content": "{text}"' in span.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert span.attributes.get(semconv.STOPPED_EARLY, False) is not whole
    assert caplog.records == []


@pytest.mark.parametrize("make", ASYNC_MAKERS, ids=["generator", "client"])
@pytest.mark.parametrize("how", HOWS)
async def test_40_the_same_for_asynchronous_streams(make, how, caplog):
    """``aclose``, and ``close`` where the client has it."""
    with recording(capture_content=True) as seen, caplog.at_level(logging.WARNING):
        stream = tracer.llm("m")(make)()
        whole = how == "read_inside_with"
        if how in ("with_break", "read_inside_with"):
            async with stream as inside:
                async for _ in inside:
                    if not whole:
                        break
        else:
            await anext(stream)
            if how != "drop":
                await (stream.close() if make is not async_generator else stream.aclose())
            if how == "close_twice":
                await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0)
    [span] = seen.spans
    text = "abc" if whole else "a"
    assert f'"content": "{text}"' in span.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert caplog.records == []


def returning():
    return steps()


def returning_traced():
    return tracer.tool("inner")(steps)()


def returning_lazy():
    return filter(lambda _: True, steps())


def steps():
    for n in range(3):
        CLOCK[0].forward(0.1)
        with tracer.stage("inside"):
            pass
        yield n


CLOCK: list[FakeClock] = [FakeClock()]


@pytest.mark.parametrize("function", [steps, returning, returning_traced, returning_lazy])
@pytest.mark.parametrize("decorator", [tracer.trace, tracer.agent, tracer.llm])
def test_41_a_spans_length_is_its_streams(function, decorator, caplog):
    """Three items 0.1 s apart: at least 0.3 s, and the spans made inside are below it."""
    CLOCK[0] = FakeClock()
    with recording(CLOCK[0]) as seen, caplog.at_level(logging.WARNING):
        assert list(decorator(function)()) == [0, 1, 2]
    [outer] = [s for s in seen.spans if s.parent is None]
    assert outer.end_time - outer.start_time == 300_000_000
    inside = [s for s in seen.spans if s.name.startswith("inside")]
    assert len(inside) == 3
    assert all(s.parent is not None for s in inside)
    assert caplog.records == []


async def test_41_asynchronous_streams_and_functions_that_give_them(caplog):
    """An async generator, a coroutine that gives one, a coroutine that gives a plain one."""

    async def items():
        for n in range(3):
            await asyncio.sleep(0.1)
            with tracer.stage("inside"):
                pass
            yield n

    async def giving():
        return items()

    async def giving_plain():
        return steps()

    with caplog.at_level(logging.WARNING):
        for function in (items, giving, giving_plain):
            with recording(SystemClock()) as seen:
                made = tracer.trace("t")(function)()
                made = await made if asyncio.iscoroutine(made) else made
                if function is giving_plain:
                    assert list(made) == [0, 1, 2]
                else:
                    assert [n async for n in made] == [0, 1, 2]
            tree = {"inside": {}, "inside#2": {}, "inside#3": {}}
            assert spans_as_tree(seen.spans) == {"t": tree}
            if function is not giving_plain:
                assert seen.named("t").end_time - seen.named("t").start_time >= 300_000_000
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_41_a_route_that_gives_a_streaming_answer(kind, caplog):
    """FastAPI, over a real socket: the span of the route ends with the stream."""
    import aiohttp
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    async def items():
        for _ in range(3):
            await asyncio.sleep(0.1)
            with tracer.stage("inside"):
                pass
            yield b"x"

    def plain_items():
        import time

        for _ in range(3):
            time.sleep(0.1)
            with tracer.stage("inside"):
                pass
            yield b"x"

    @app.get("/")
    @tracer.trace("route")
    async def route():
        return StreamingResponse(items() if kind == "async" else plain_items())

    with recording(SystemClock()) as seen, caplog.at_level(logging.WARNING):
        async with live_server(app) as live, aiohttp.ClientSession() as client:
            async with client.get(live.url + "/") as answer:
                assert await answer.read() == b"xxx"
    route_span = seen.named("route")
    assert route_span.end_time - route_span.start_time >= 300_000_000
    parents = {s.parent.span_id for s in seen.spans if s.name.startswith("inside")}
    assert parents == {route_span.context.span_id}
    assert [r for r in caplog.records if "span" in r.getMessage()] == []


@pytest.mark.parametrize("decorator", [tracer.trace, tracer.llm, tracer.tool, tracer.agent])
def test_43_an_early_stop_is_no_error_and_a_failure_is(decorator, caplog):
    """Break after 2 of 5: not ERROR, marked; a ValueError at item 3: ERROR."""

    def five(fail: bool = False):
        for n in range(5):
            if fail and n == 2:
                raise ValueError("at item 3")
            yield n

    with recording() as seen, caplog.at_level(logging.ERROR):
        for n in decorator(five)():
            if n == 1:
                break
        gc.collect()
        with pytest.raises(ValueError, match="item 3"):
            list(decorator(five)(True))
    stopped, failed = seen.spans
    assert stopped.attributes[semconv.STOPPED_EARLY] is True
    assert stopped.status.is_ok
    assert failed.status.is_ok is False
    assert failed.attributes[semconv.ERROR_TYPE] == "ValueError"
    assert semconv.STOPPED_EARLY not in failed.attributes
    assert caplog.records == []


def test_43_a_stage_left_by_an_early_stop_is_no_error_either():
    """``with stage`` around a ``yield`` that is never reached again."""

    @tracer.trace("t")
    def items():
        with tracer.stage("part"):
            yield 1
            yield 2

    with recording() as seen:
        stream = items()
        next(stream)
        stream.close()
    assert spans_as_tree(seen.spans) == {"t": {"part": {}}}
    assert all(s.status.is_ok for s in seen.spans)


@pytest.mark.parametrize("capture", [False, True])
def test_44_a_long_stream_takes_no_memory(capture):
    """200,000 items of 1 KB: under 10 MB; where content is on, the text is capped and says so."""

    @tracer.llm("m")
    def model():
        for n in range(200_000):
            yield f"{n:06d}" + "x" * 1018

    with recording(SystemClock(), capture_content=capture) as seen:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            count = sum(1 for _ in model())
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
    assert count == 200_000
    assert peak < 10_000_000
    [span] = seen.spans
    if not capture:
        assert semconv.GEN_AI_OUTPUT_MESSAGES not in span.attributes
        return
    assert len(span.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]) < 9000
    told = f"{semconv.GEN_AI_OUTPUT_MESSAGES}={200_000 * 1024}"
    assert span.attributes[semconv.CUT] == (told,)


async def test_46_cancelled_decorated_calls_give_their_connections_back():
    """A pool of 10, 20 workers cancelling within 50 ms for 5 s: then 10 calls succeed."""
    import aiohttp

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    rng = random.Random(46)
    with recording(SystemClock()) as seen:
        async with live_server(app) as live:
            pool = aiohttp.TCPConnector(limit=10)
            async with aiohttp.ClientSession(connector=pool) as client:

                @tracer.llm("m")
                async def call():
                    async with client.get(live.url + "/") as answer:
                        async for part in answer.content.iter_any():
                            yield part

                async def read() -> int:
                    return len([part async for part in call()])

                async def worker(until: float) -> None:
                    while asyncio.get_running_loop().time() < until:
                        try:
                            await asyncio.wait_for(read(), rng.uniform(0, 0.05))
                        except TimeoutError:
                            pass

                until = asyncio.get_running_loop().time() + 5
                await asyncio.gather(*(worker(until) for _ in range(20)))
                made = await asyncio.wait_for(asyncio.gather(*(read() for _ in range(10))), 10)
    assert len(made) == 10
    assert all(made)
    ids = [s.context.span_id for s in seen.spans]
    assert len(ids) == len(set(ids))
    assert all(s.status.is_ok for s in seen.spans)


def test_the_unused_kinds_of_lazy_iterators_are_watched_as_well():
    """``itertools`` runs while it is read: the span's length is the reading's."""
    clock = FakeClock()

    @tracer.trace("t")
    def chained():
        return itertools.chain([1], [2])

    with recording(clock) as seen:
        for _ in chained():
            clock.forward(1)
    assert seen.named("t").end_time - seen.named("t").start_time == 2_000_000_000
