"""The current span's traceparent in the requests of the usual HTTP clients."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import httpx
import openai
import pytest
import requests

import tracer
from tests.support.plain_server import plain_server
from tracer.clock import SystemClock
from tracer.testing import recording


class Heard:
    """Answers everything, and keeps the traceparents."""

    def __init__(self) -> None:
        self.parents: list[str] = []

    async def __call__(self, scope, receive, send) -> None:
        headers = [v.decode() for k, v in scope["headers"] if k == b"traceparent"]
        assert len(headers) <= 1
        self.parents.append(headers[0] if headers else "")
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})


async def with_httpx(url: str) -> None:
    async with tracer.propagating(tracer.propagating(httpx.AsyncClient())) as client:
        await client.get(url)


async def with_sync_httpx(url: str) -> None:
    with tracer.propagating(httpx.Client()) as client:
        await asyncio.to_thread(client.get, url)


async def with_requests(url: str) -> None:
    with tracer.propagating(tracer.propagating(requests.Session())) as client:
        await asyncio.to_thread(client.get, url)


async def with_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as client:
        tracer.propagating(tracer.propagating(client))
        async with client.get(url) as answer:
            await answer.read()


async def with_openai(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await tracer.propagating(client).models.with_raw_response.list()


async def with_headers(url: str) -> None:
    async with httpx.AsyncClient() as client:
        await client.get(url, headers=tracer.inject({"x": "y"}))


KINDS = [with_httpx, with_sync_httpx, with_requests, with_aiohttp, with_openai, with_headers]


@pytest.mark.parametrize("send", KINDS)
async def test_a_request_carries_the_span_it_is_made_in(send):
    """Once, however often the client was prepared; outside any span there is no header."""
    heard = Heard()
    with recording(SystemClock()) as seen:
        async with plain_server(heard) as url:
            with tracer.trace("task"):
                await send(url)
            await send(url)
    context = seen.named("task").context
    assert heard.parents == [f"00-{context.trace_id:032x}-{context.span_id:016x}-01", ""]


def test_a_client_of_another_kind_is_refused_in_one_sentence():
    """With the way out."""
    with pytest.raises(TypeError, match=r"Thread cannot .* use tracer.inject"):
        tracer.propagating(threading.Thread())
