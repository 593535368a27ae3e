"""What `proxy/protocol.py` relies on in uvicorn's HTTP protocol, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.middleware import App, Receive, Scope, Send
from proxy.protocol import EXTENSION, ConnectionMarks
from tests.support.live_server import live_server

STREAM = [(b"content-type", b"text/event-stream")]


async def ask(port: int, head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b" / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
    seen = await reader.read()
    writer.close()
    return seen


def answering(
    headers: list[tuple[bytes, bytes]], body: bytes, found: list[Callable[[bytes], object] | None]
) -> App:
    """Sends ``body``; notes the writer before the head, behind it, and behind the end."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        marks: ConnectionMarks = scope["extensions"][EXTENSION]
        found.append(marks.chunk_writer())
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        found.append(marks.chunk_writer())
        if (write := found[-1]) is not None:
            write(b"2\r\nab\r\n")
        await send({"type": "http.response.body", "body": body, "more_body": False})
        found.append(marks.chunk_writer())

    return app


async def test_chunks_may_be_written_between_the_head_and_the_end():
    """What is written past ``send`` stands where it was written, and the answer stays whole."""
    found: list[Callable[[bytes], object] | None] = []
    async with live_server(answering(STREAM, b"cd", found)) as server:
        seen = await ask(server.port, b"GET")
    assert seen.endswith(b"\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")
    assert [w is None for w in found] == [True, False, True]


@pytest.mark.parametrize(
    ("method", "headers"),
    [(b"HEAD", STREAM), (b"GET", [(b"content-length", b"2")])],
    ids=["head", "a length"],
)
async def test_an_answer_without_chunks_has_no_writer(method, headers):
    """A chunk in it would be taken for its body, or for the next answer."""
    found: list[Callable[[bytes], object] | None] = []
    async with live_server(answering(headers, b"cd", found)) as server:
        await ask(server.port, method)
    assert found == [None, None, None]


def test_another_uvicorn_has_no_writer():
    """Members that are gone mean the ordinary way, not a failed request."""
    marks = ConnectionMarks(0)
    marks.cycle = object()  # type: ignore[assignment]
    assert marks.chunk_writer() is None
