"""Chunks that cross the proxy in the frame they came in, and those that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.http1_message import ResponseMessage, whole_chunks
from tests.fake_llm.dialects import DONE, ROLE, content, usage
from tests.support.live_proxy import live_proxy
from tests.support.raw_client import request_bytes

HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
LAST = b"0\r\n\r\n"
ASK = request_bytes("/v1/chat/completions", {"model": "m", "stream": True, "messages": []})
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def framed(body: bytes, form: str = "%X") -> bytes:
    return (form % len(body)).encode() + b"\r\n" + body + b"\r\n"


def bodies(raw: bytes) -> list[bytes]:
    """The chunks of an answer as a client got it."""
    _, _, rest = raw.partition(b"\r\n\r\n")
    found, at = [], 0
    while at < len(rest):
        end = rest.index(b"\r\n", at)
        size = int(rest[at:end], 16)
        found.append(rest[end + 2 : end + 2 + size])
        at = end + size + 4
    return found


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[str]:
    """Reads one request and leaves the rest to ``script``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def in_step(parts: list[bytes], ask_usage: bool = False) -> tuple[bytes, list[bytes]]:
    """An upstream sends each part when the client has the one before: the raw answer, its reads."""
    step = asyncio.Semaphore(0)

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await step.acquire()

    reads: list[bytes] = []
    async with upstream(script) as url, live_proxy(url, ask_usage=ask_usage) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(ASK)
        while not b"".join(reads).endswith(LAST):
            reads.append(await reader.read(65536))
            step.release()
        writer.close()
    return b"".join(reads), reads


async def test_a_chunk_crosses_in_the_frame_it_came_in():
    """An upper-case size, which the server behind ``send`` would write otherwise."""
    chunks = [ROLE, *(content(f" word number {n} of some others") for n in range(12)), DONE]
    parts = [framed(chunk) for chunk in chunks]
    raw, reads = await in_step([HEAD + parts[0], *parts[1:7], b"".join(parts[7:9]), *parts[9:], LAST])
    assert bodies(raw) == [*chunks, b""]
    assert b"".join(parts[7:9]) in reads
    assert framed(chunks[3]) != framed(chunks[3], "%x")
    assert framed(chunks[3]) in reads


async def test_a_frame_of_another_form_is_read_and_written_anew():
    """Zeros before the size, an extension: the client gets what uvicorn writes."""
    odd = [b"00" + framed(content("a")), framed(content("b"), "%X;name=value")]
    raw, _ = await in_step([HEAD + framed(ROLE), framed(content("x")), *odd, framed(DONE), LAST])
    assert bodies(raw) == [ROLE, content("x"), content("a"), content("b"), DONE, b""]
    assert b"name=value" not in raw


async def test_a_client_that_does_not_read_holds_the_upstream_and_gets_all():
    """Chunks past ``send`` obey the same back-pressure, and their order outlives it."""
    stalled = asyncio.Event()
    chunks = [content(f"{n} " + "x" * 8000) for n in range(3000)]

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for chunk in chunks:
            writer.write(framed(chunk))
            draining = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait({draining}, timeout=0.3))[0]:
                stalled.set()
            await draining
        stalled.set()
        writer.write(framed(DONE) + LAST)

    async with upstream(script) as url, live_proxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(ASK)
        parts = [await reader.readexactly(20_000)]
        await stalled.wait()
        while not parts[-1].endswith(LAST):
            parts.append(await reader.read(1 << 20))
        writer.close()
    assert b"".join(bodies(b"".join(parts))) == b"".join(chunks) + DONE


async def test_the_usage_chunk_is_cut_out_between_chunks_that_pass():
    """With ``ask_usage`` only that one chunk is missing."""
    chunks = [ROLE, content("a"), content("b"), usage(3, 2), content("c", "stop"), DONE]
    raw, _ = await in_step(
        [HEAD + framed(ROLE), *map(framed, chunks[1:3]), framed(chunks[3]) + framed(chunks[4]),
         framed(DONE), LAST],
        ask_usage=True,
    )  # fmt: skip
    assert bodies(raw) == [*(c for c in chunks if c != usage(3, 2)), b""]


FORMS = st.sampled_from(["%x", "%X", "0%x", "%x;a=b", '%x;a="b"'])
CHUNKS = st.lists(st.tuples(st.binary(min_size=1, max_size=40), FORMS), max_size=6)


@given(CHUNKS, st.lists(st.integers(0, 400), max_size=10), st.booleans())
def test_a_chunk_that_is_not_fed_changes_nothing_of_the_rest(chunks, cuts, at_chunks):
    """Any chunks split anywhere: those that are taken whole, and all others by the parser."""
    parts = [HEAD, *(framed(body, form) for body, form in chunks), b"0\r\nT: x\r\n\r\n"]
    raw = b"".join(parts)
    at = sorted({0, len(raw), *(c for c in cuts if c < len(raw))})
    if not at_chunks:
        parts = [raw[a:b] for a, b in pairwise(at)]
    message, body = ResponseMessage(headless=False), b""
    for part in parts:
        whole = whole_chunks(part) if message.between_chunks else None
        body += message.feed(part) if whole is None else b"".join(whole)
    assert body == b"".join(b for b, _ in chunks)
    assert message.reusable


@given(st.lists(st.binary(max_size=12) | st.builds(framed, st.binary(max_size=20), FORMS), max_size=3))
def test_only_whole_plain_chunks_are_taken_for_such(pieces):
    """Whatever is taken, the parser reads the same."""
    data = b"".join(pieces)
    parts = whole_chunks(data)
    if parts is not None:
        message = ResponseMessage(headless=False)
        message.feed(HEAD)
        assert message.feed(data) == b"".join(parts)
        assert all(parts)
        assert message.between_chunks


@pytest.mark.parametrize("size", [b"0x3", b"+3", b" 3", b"3 ", b"03", b"0_3", b"-3", b"", b"g", b"0"])
def test_a_size_in_any_other_writing_is_the_parsers(size):
    """What Python's ``int`` would read besides, and the last chunk."""
    assert whole_chunks(b"3\r\nabc\r\n" + size + b"\r\nabc\r\n") is None
    assert whole_chunks(b"3\r\nabc\r\n") == [b"abc"]
