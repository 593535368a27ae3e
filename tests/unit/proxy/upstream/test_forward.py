"""Requests cross the proxy untouched, in both directions, chunk by chunk."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.fake_llm import dialects
from tests.fake_llm.server import Gate, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"


async def test_a_stream_passes_byte_for_byte_and_leaves_its_record():
    """The client gets the upstream's bytes; the record has tokens, stages and the law of the sum."""
    reply = dialects.chat(tokens=4)
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
        [root] = await proxy.sink.wait_for(1)
    assert answer.content == dialects.together(reply)
    assert root[semconv.STATUS] == "ok"
    assert root[semconv.MODEL] == "m"
    assert root[semconv.STREAM] is True
    assert root[semconv.SOURCE] == "upstream"
    assert root[semconv.SOURCE_DETAIL] == "usage"
    assert (root[semconv.INPUT_TOKENS], root[semconv.OUTPUT_TOKENS]) == (7, 4)
    assert root[semconv.FINISH_REASON] == "stop"
    assert root[semconv.DONE_SEEN] is True
    assert root[semconv.FIRST_TOKEN_NS] >= root[semconv.FIRST_CHUNK_NS] > 0
    parts = [v for k, v in root.items() if k.startswith("stagelens.stage.") and k.endswith("_ns")]
    assert sum(parts) == root[semconv.E2E_NS]
    names = [s.name for s in proxy.sink.requests[0]]
    assert names == ["POST /v1/chat/completions", "prompt", "chat m", "time-to-first-token",
                     "decode", "deliver"]  # fmt: skip


async def test_each_chunk_leaves_at_once():
    """The client has the first token while the upstream still waits."""
    gate = asyncio.Event()
    reply = Reply([dialects.ROLE, dialects.content("a"), Gate(gate), dialects.content("b", "stop"),
                   dialects.DONE])  # fmt: skip
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
        client.stream("POST", proxy.url + CHAT, json={"stream": True}) as answer,
    ):
        got = b""
        async for part in answer.aiter_raw():
            got += part
            if got == dialects.ROLE + dialects.content("a"):
                gate.set()
    assert got == dialects.together(reply)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_unknown_paths_and_methods_are_forwarded_untouched(method):
    """Method, path, query and body reach the upstream as they were sent (faults 88)."""
    reply = Reply([b"hello"], 299, content_type="text/x-odd", framing="length")
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        target = "/odd/%2Fpath//x?a=1&a=2&b=%20"
        answer = await client.request(method, proxy.url + target, content=b"\x00body")
        [root] = await proxy.sink.wait_for(1)
    [asked] = fake.requests
    assert (asked.method, asked.target, asked.body) == (method, target, b"\x00body")
    assert (answer.status_code, answer.content) == (299, b"hello")
    assert answer.headers["content-type"] == "text/x-odd"
    assert semconv.HTTP_ROUTE not in root
    assert root[semconv.OPERATION] == ""
