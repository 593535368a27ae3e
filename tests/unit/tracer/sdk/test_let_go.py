"""Streams and coroutines that are dropped, cut off or never begun."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import types
import warnings

import pytest
from opentelemetry import trace as otel

import tracer
from tracer import semconv
from tracer.testing import recording, spans_as_tree


@tracer.trace("dropped")
def dropped():
    with tracer.stage("in"):
        yield 1
        yield 2


@tracer.trace("given")
def given():
    return dropped.__wrapped__()


@tracer.trace("tidy")
def tidy():
    try:
        yield 1
        yield 2
    finally:
        with tracer.stage("cleanup"):
            pass


def test_a_dropped_stream_leaves_current_what_was():
    with recording() as seen:
        next(dropped())
        assert otel.get_current_span() is otel.INVALID_SPAN
        with tracer.stage("later"):
            for _ in dropped():
                break
            assert otel.get_current_span().name == "later"
    assert spans_as_tree(seen.spans) == {"dropped": {"in": {}}, "later": {"dropped": {"in": {}}}}


@pytest.mark.parametrize("make", [dropped, given])
def test_a_stream_that_the_collector_drops_leaves_current_what_was(make):
    with recording():
        with tracer.stage("outer"):
            ring = types.SimpleNamespace(stream=make())
            next(ring.stream)
            ring.ring = ring
            del ring
            gc.collect()
            assert otel.get_current_span().name == "outer"
        assert otel.get_current_span() is otel.INVALID_SPAN


def test_what_a_dropped_stream_does_last_is_below_its_own_span():
    with recording() as seen, tracer.stage("outer"):
        for _ in tidy():
            break
    assert spans_as_tree(seen.spans) == {"outer": {"tidy": {"cleanup": {}}}}


def test_a_stage_still_takes_back_what_was_left_current_inside():
    with recording(), tracer.stage("outer"):
        with tracer.stage("in"):
            tracer.stage("left").__enter__()
        assert otel.get_current_span().name == "outer"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="close() gives no value there")
def test_a_closed_stream_gives_its_generators_value():
    @tracer.trace
    def stream():
        try:
            yield 1
        except GeneratorExit:
            return 7

    with recording():
        made = stream()
        next(made)
        assert made.close() == 7


class Slow:
    """Its second item waits until it is let go."""

    def __init__(self) -> None:
        self.n, self.go = 0, asyncio.Event()

    def __aiter__(self) -> Slow:
        return self

    async def __anext__(self) -> str:
        if self.n == 1:
            await self.go.wait()
        if self.n == 3:
            raise StopAsyncIteration
        self.n += 1
        return "text"


@tracer.llm("model")
async def slow() -> Slow:
    return Slow()


async def test_a_stream_read_with_a_time_limit_goes_on_after_it():
    with recording() as seen:
        stream = await slow()
        await anext(stream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not seen.spans
        stream.go.set()
        assert [item async for item in stream] == ["text", "text"]
    [span] = seen.spans
    assert span.attributes[semconv.ITEMS] == 3
    assert semconv.STOPPED_EARLY not in span.attributes


async def test_a_stream_that_was_cut_off_and_dropped_ended_when_it_was():
    with recording() as seen:
        stream = await slow()
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        seen.clock.forward(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        seen.clock.forward(5)
        del stream, waiting
        await asyncio.sleep(0)
        gc.collect()
    [span] = seen.spans
    assert span.end_time - span.start_time == 1_000_000_000
    assert span.attributes[semconv.STOPPED_EARLY] is True


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_coroutine_that_is_never_begun_ends_its_span_once(how):
    async def inner() -> None: ...

    @tracer.trace("given")
    def given():
        return inner()

    with recording() as seen, warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "cancel":
            task = asyncio.ensure_future(given())
            task.cancel()
            await asyncio.wait([task])
            del task
        else:
            given().close()
        gc.collect()
    assert [span.name for span in seen.spans] == ["given"]


async def test_a_coroutine_that_somebody_else_holds_is_not_closed():
    async def inner() -> int:
        return 5

    held = inner()

    @tracer.trace("given")
    def given():
        return held

    with recording() as seen:
        given().close()
        assert await held == 5
    assert [span.name for span in seen.spans] == ["given"]


@types.coroutine
def stepped(value: int = 5):
    yield
    return value


@pytest.mark.parametrize("made", [stepped, functools.partial(stepped, 5), lambda: stepped(5)])
async def test_generators_that_are_awaited_stay_so(made):
    traced = tracer.trace("stepped")(made)
    assert await traced() == 5
    with recording() as seen:
        assert await traced() == 5
    assert [span.name for span in seen.spans] == ["stepped"]


class Called:
    def __call__(self, given):
        return given, "called"

    def method(self, given):
        return given, "method"


class Holder:
    part = tracer.tool(functools.partial(lambda given, k: (given, k), k=3))
    called = tracer.trace(Called())
    method = tracer.trace(Called().method)
    builtin = tracer.trace(len)


@pytest.mark.parametrize("name", ["part", "called", "method", "builtin"])
def test_what_a_class_does_not_bind_it_does_not_bind_when_traced(name):
    if name == "part" and sys.version_info >= (3, 14):
        pytest.skip("partials are bound there")
    with recording() as seen:
        assert getattr(Holder(), name)("abc") in [
            ("abc", 3),
            ("abc", "called"),
            ("abc", "method"),
            3,
        ]
    assert len(seen.spans) == 1


def test_an_annotation_that_cannot_be_evaluated_costs_no_span():
    made: dict = {}
    source = "def find(query: Nowhere, k: Nowhere = 3) -> Nowhere:\n    return []\n"
    exec(compile(source, "x", "exec", dont_inherit=True) if sys.version_info >= (3, 14) else
         "from __future__ import annotations\n" + source, made)  # fmt: skip
    with recording() as seen:
        tracer.tool(made["find"])("query")
        tracer.retrieval(made["find"])("query")
    assert [span.name for span in seen.spans] == ["execute_tool find", "retrieval find"]
    assert seen.spans[0].attributes[semconv.ARGUMENTS_SIZE] == len('{"query": "query"}')


def test_a_signature_that_raises_anything_costs_no_span():
    class Odd:
        @property
        def __signature__(self):
            raise RuntimeError

        def __call__(self, *_):
            return []

    with recording() as seen:
        tracer.tool("odd")(Odd())("query")
        tracer.retrieval("odd")(Odd())("query")
    assert len(seen.spans) == 2
