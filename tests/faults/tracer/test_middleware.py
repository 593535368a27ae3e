"""Section F, cases 61 and 62: the span of a stream in a user's own application."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.support.plain_server import plain_server
from tracer import semconv
from tracer.asgi import StagelensMiddleware
from tracer.clock import SystemClock
from tracer.testing import recording


def streaming(parts: int, gap_s: float):
    async def app(scope, receive, send):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for n in range(parts):
            await asyncio.sleep(gap_s)
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % n, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return StagelensMiddleware(app)


async def test_61_a_stream_of_500_parts_has_one_span_and_one_list_of_gaps():
    """However many parts: one span; the gaps in one attribute, 499 of them."""
    with recording(SystemClock()) as seen:
        async with plain_server(streaming(500, 0)) as url, aiohttp.ClientSession() as client:
            async with client.get(url) as answer:
                assert (await answer.read()).count(b"data:") == 500
    [span] = seen.spans
    assert len(span.events) == 0
    assert len(span.attributes[semconv.ITL_NS].split(",")) == 499
    assert span.attributes[semconv.ITL_KIND] == "chunk"


async def test_61_the_list_of_gaps_has_an_end():
    """10,000 parts: 8,192 gaps are kept."""
    with recording(SystemClock()) as seen:
        async with plain_server(streaming(10_000, 0)) as url, aiohttp.ClientSession() as client:
            async with client.get(url) as answer:
                await answer.read()
    [span] = seen.spans
    assert len(span.attributes[semconv.ITL_NS].split(",")) == semconv.ITL_CAP


async def test_62_the_span_ends_with_the_last_byte_and_the_head_is_told_apart():
    """4 events 1 s apart: at least 4 s, while the answer's head was out at once."""
    with recording(SystemClock()) as seen:
        async with plain_server(streaming(4, 1)) as url, aiohttp.ClientSession() as client:
            async with client.get(url) as answer:
                await answer.read()
    [span] = seen.spans
    assert span.end_time - span.start_time >= 4_000_000_000
    assert span.attributes[semconv.RESPONSE_HEAD_NS] < span.attributes[semconv.FIRST_CHUNK_NS] - 500_000_000
    assert span.attributes[semconv.FIRST_CHUNK_NS] >= 1_000_000_000
