"""Clients that leave while nobody reads from them, or on paths without a record."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.fake_llm.server import Hang, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    return head.encode() + b"%d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("path", [CHAT, "/other", "/health"])
@pytest.mark.parametrize("size", [10, 100_000, 400_000, 3_000_000])
async def test_a_client_that_leaves_is_seen_however_long_its_request_was(path, size):
    """Behind a long body's last part the server would read no further until it has answered."""
    async with fake_llm(Reply([Hang()], head_first=False)) as fake, live_proxy(fake.url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(path, b'{"model":"m","x":"' + b"y" * size + b'"}'))
        await asyncio.wait_for(fake.asked.wait(), 10)
        writer.close()
        await asyncio.wait_for(fake.left.wait(), 10)
        if path == "/health":
            return
        [root] = await proxy.sink.wait_for(1)
    assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("cancelled", "client_disconnect")


@asynccontextmanager
async def deaf() -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """An upstream that takes no body: its URL, when it was asked, when it was left."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked.set()
        await left.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked, left
        left.set()


async def test_a_client_that_is_reset_in_an_upload_that_stands_still_is_seen():
    """Back-pressure stops the reading from the client; the kernel is asked whether it is there."""
    async with deaf() as (url, asked, _), live_proxy(url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/upload", b"x" * 30_000_000))
        await asyncio.wait_for(asked.wait(), 10)
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        [root] = await proxy.sink.wait_for(1)
    assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("cancelled", "client_disconnect")


async def test_the_time_limit_holds_on_paths_without_a_record():
    """504 before the answer began; no record is made."""
    async with (
        fake_llm(Reply([Hang()], head_first=False)) as fake,
        live_proxy(fake.url, proxy={"request_timeout_s": 0.2}) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.get(proxy.url + "/metrics", timeout=20)
        await asyncio.wait_for(fake.left.wait(), 10)
        assert not proxy.sink.requests
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "timeout"
