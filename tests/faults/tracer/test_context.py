"""Section E: whose child a span is, and what is sent on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import threading
import time

import aiohttp
import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON

import tracer
from tests.support.plain_server import plain_server
from tracer.asgi import StagelensMiddleware
from tracer.clock import Anchor, SystemClock
from tracer.sdk.runtime import Runtime, install
from tracer.testing import Recorded, recording, spans_as_tree

OTEL_LOG = "opentelemetry.context"


@pytest.mark.parametrize("decorator", [tracer.llm, tracer.trace, tracer.tool])
@pytest.mark.parametrize("how", ["close_in_b", "next_in_b", "hook", "cancel_a"])
async def test_47_a_stream_begun_in_one_task_and_closed_in_another(decorator, how, caplog):
    """No record of ``opentelemetry.context``, one span, and each task's current span is its own."""

    async def items():
        with tracer.stage("inside"):
            yield 1
            yield 2

    now_current = []

    async def begin(stream):
        before = otel.get_current_span()
        await anext(stream)
        now_current.append(otel.get_current_span() is before)
        if how == "cancel_a":
            await asyncio.sleep(60)

    async def go_on(stream):
        before = otel.get_current_span()
        if how == "next_in_b":
            await anext(stream)
        await stream.aclose()
        now_current.append(otel.get_current_span() is before)

    with recording(SystemClock()) as seen, caplog.at_level(logging.DEBUG, OTEL_LOG):
        stream = decorator("s")(items)()
        first = asyncio.create_task(begin(stream))
        await asyncio.sleep(0.01)
        if how == "cancel_a":
            first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        if how == "hook":
            del stream, first
            gc.collect()
            for _ in range(5):
                await asyncio.sleep(0)
        else:
            await asyncio.create_task(go_on(stream))
    names = sorted(s.name for s in seen.spans)
    assert len(names) == 2
    assert "inside" in names
    assert all(now_current)
    assert [r for r in caplog.records if r.name == OTEL_LOG] == []
    assert not otel.get_current_span().get_span_context().is_valid


async def test_47_a_stage_across_the_yield_of_an_undecorated_stream(caplog):
    """Closed from another task, a plain generator's ``with stage`` disturbs neither task."""

    async def items():
        with tracer.stage("inside"):
            yield 1

    with recording() as seen, caplog.at_level(logging.DEBUG, OTEL_LOG):
        stream = items()
        await asyncio.create_task(anext(stream))  # type: ignore[arg-type]

        async def close():
            with tracer.stage("closer"):
                await stream.aclose()
                with tracer.stage("after"):
                    pass

        await asyncio.create_task(close())
    assert spans_as_tree(seen.spans) == {"inside": {}, "closer": {"after": {}}}
    assert caplog.records == []


def test_47_a_coroutine_that_is_dropped_half_way(caplog):
    """Driven by hand in one context and closed in another: nothing is logged, one span."""
    import contextvars

    @tracer.tool
    async def waits():
        await asyncio.sleep(60)

    async def never():
        await waits()

    class Pause:
        def __await__(self):
            yield

    @tracer.tool
    async def pauses():
        await Pause()

    with recording() as seen, caplog.at_level(logging.DEBUG, OTEL_LOG):
        coroutine = pauses()
        contextvars.copy_context().run(coroutine.send, None)
        coroutine.close()
    assert [s.name for s in seen.spans] == ["execute_tool pauses"]
    assert seen.spans[0].status.is_ok
    assert caplog.records == []
    never().close()


@tracer.trace("inner")
def inner(_n: int = 0) -> None:
    return


CARRIERS = {
    "our_pool_map": lambda: list(tracer.ThreadPoolExecutor(2).map(inner, [1, 2])),
    "our_pool_submit": lambda: tracer.ThreadPoolExecutor(2).submit(inner, 1).result(),
    "carried_map": lambda: list(
        concurrent.futures.ThreadPoolExecutor(2).map(tracer.carry(inner), [1, 2])
    ),
    "run_in_thread": lambda: tracer.run_in_thread(inner).join(),
    "carried_thread": lambda: _run(threading.Thread(target=tracer.carry(inner))),
    "carried_timer": lambda: _run(threading.Timer(0, tracer.carry(inner))),
}


def _run(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


@pytest.mark.parametrize("how", CARRIERS)
def test_49_threads_keep_the_parent(how):
    """With each of our carriers: one trace, and ``outer`` is the parent."""
    with recording(SystemClock()) as seen, tracer.trace("outer"):
        CARRIERS[how]()
    outer = seen.named("outer").context
    inside = [s for s in seen.spans if s.name == "inner"]
    assert len(inside) == (2 if how.endswith("map") else 1)
    assert {(s.context.trace_id, s.parent.span_id) for s in inside} == {
        (outer.trace_id, outer.span_id)
    }


async def test_49_the_loops_executors_keep_the_parent():
    """``to_thread`` by itself; ``run_in_executor`` with our pool or a carried function."""
    loop = asyncio.get_running_loop()
    with recording(SystemClock()) as seen, tracer.trace("outer"):
        await asyncio.to_thread(inner)
        await loop.run_in_executor(tracer.ThreadPoolExecutor(1), inner)
        await loop.run_in_executor(None, tracer.carry(inner))
    assert spans_as_tree(seen.spans) == {"outer": {"inner": {}, "inner#2": {}, "inner#3": {}}}


async def test_49_without_a_carrier_only_to_thread_works_as_documented():
    """The standard pool and thread lose the parent; the docs say so."""
    with recording(SystemClock()) as seen, tracer.trace("outer"):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(inner).result()
        await asyncio.get_running_loop().run_in_executor(None, inner)
    assert spans_as_tree(seen.spans) == {"outer": {}, "inner": {}, "inner#2": {}}


def test_50_nested_asynchronous_generators_are_nested_and_have_their_lengths():
    """Inner 0.3 s and two items, outer 0.1 s, a traced function 0.2 s around ``asyncio.run``."""

    @tracer.trace("inner")
    async def inner_items():
        await asyncio.sleep(0.3)
        yield 1
        yield 2

    @tracer.trace("outer")
    async def outer_items():
        await asyncio.sleep(0.1)
        async for item in inner_items():
            yield item

    @tracer.trace("caller")
    def caller():
        async def read():
            return [item async for item in outer_items()]

        time.sleep(0.2)
        return asyncio.run(read())

    with recording(SystemClock()) as seen:
        assert caller() == [1, 2]
    assert spans_as_tree(seen.spans) == {"caller": {"outer": {"inner": {}}}}
    lengths = {s.name: s.end_time - s.start_time for s in seen.spans}
    assert lengths["caller"] >= 600_000_000
    assert lengths["outer"] >= 400_000_000
    assert lengths["inner"] >= 300_000_000


TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("incoming", "force", "sent"), [("00", False, "00"), ("00", True, "01"), ("01", False, "01")]
)
async def test_52_the_outgoing_flag_is_the_decision(incoming, force, sent):
    """Through a user's application to the next hop: same trace, a valid span, the decided flag."""
    heard: list[str] = []

    async def upstream(scope, receive, send):
        heard.append(dict(scope["headers"])[b"traceparent"].decode())
        await answer(send)

    async def answer(send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    clock = SystemClock()
    seen = Recorded(clock)
    provider = TracerProvider(resource=Resource({}), sampler=ALWAYS_ON if force else DEFAULT_ON)
    provider.add_span_processor(seen)
    before = install(
        Runtime(provider.get_tracer("t"), clock, Anchor.take(clock), False, None, 8192, None, 0.0)
    )
    try:
        async with plain_server(upstream) as there, aiohttp.ClientSession() as out:
            tracer.propagating(out)

            async def app(scope, receive, send):
                async with out.get(there) as got:
                    await got.read()
                await answer(send)

            async with plain_server(StagelensMiddleware(app)) as here:
                headers = {"traceparent": f"00-{TRACE}-{CALLER}-{incoming}"}
                async with (
                    aiohttp.ClientSession() as client,
                    client.get(here, headers=headers) as got,
                ):
                    await got.read()
    finally:
        install(before)
    [parent] = heard
    version, trace_id, span_id, flags = parent.split("-")
    assert (version, trace_id, flags) == ("00", TRACE, sent)
    assert int(span_id, 16) != 0
    assert span_id != CALLER
    if sent == "01":
        assert span_id == f"{seen.spans[-1].context.span_id:016x}"
        assert f"{seen.spans[-1].parent.span_id:016x}" == CALLER
    else:
        assert seen.spans == []
