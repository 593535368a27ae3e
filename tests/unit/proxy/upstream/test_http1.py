"""HTTP/1.1 to upstreams: what a response is, and which connection carries another request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.http1_message import HEAD_LIMIT, BadResponse, ResponseMessage
from tests.support.live_proxy import live_proxy
from tracer import semconv

TRAILED = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
           b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nX-T: v\r\n\r\n")  # fmt: skip
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def scripted(*answers: bytes, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers each request with the next bytes; the heads it got, one entry a connection's first."""
    heads: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(b"")
        try:
            while left:
                heads[-1] += await reader.readuntil(b"\r\n\r\n")
                writer.write(left.pop(0))
                await writer.drain()
                if close:
                    break
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


@pytest.mark.parametrize(
    ("method", "answer", "close", "body"),
    [
        ("GET", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + PLAIN, False, b"ok"),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nuntil the end", True, b"until the end"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nold", True, b"old"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", False, b""),
        ("GET", TRAILED, False, b"abcde"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nuntil the end", True,
         b"until the end"),
        ("GET", PLAIN + b"and more that is no HTTP", False, b"ok"),
    ],
    ids=["informational", "until close", "1.0", "head", "chunks with extension and trailer",
         "no chunks although coded", "bytes behind its length"],
)  # fmt: skip
async def test_a_response_is_read_as_its_head_says(method, answer, close, body):
    """And neither a hint before it nor a trailer behind it becomes a part of it."""
    async with (
        scripted(answer, close=close) as (url, _),
        live_proxy(url) as proxy,
        httpx.AsyncClient() as client,
    ):
        seen = await client.request(method, f"{proxy.url}/x")
    assert (seen.status_code, seen.content) == (200, body)
    assert "x-t" not in seen.headers
    assert "link" not in seen.headers


@pytest.mark.parametrize(
    ("first", "connections"),
    [
        (PLAIN, 1),
        (PLAIN + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", 2),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 2),
    ],
    ids=["kept", "a second answer that nobody asked for", "told to close"],
)
async def test_only_a_clean_connection_is_used_again(first, connections):
    """Bytes behind an answer are never taken for the next request's answer."""
    async with (
        scripted(first, PLAIN) as (url, heads),
        live_proxy(url) as proxy,
        httpx.AsyncClient() as client,
    ):
        seen = [(await client.get(f"{proxy.url}/x")).content for _ in range(2)]
    assert seen == [b"ok", b"ok"]
    assert len(heads) == connections


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * (HEAD_LIMIT + 70_000) + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["no http", "endless head", "an upgrade nobody asked for", "two lengths", "no status"],
)
async def test_what_is_no_answer_is_a_502(answer):
    """One sentence in OpenAI's form that quotes nothing of what came."""
    async with (
        scripted(answer) as (url, _),
        live_proxy(url) as proxy,
        httpx.AsyncClient() as client,
    ):
        seen = await client.get(f"{proxy.url}/v1/models")
    assert seen.status_code == 502
    assert seen.json()["error"]["type"] == "upstream_bad_response"


async def test_header_bytes_cross_as_they_are():
    """Bytes that are no UTF-8, in both directions."""
    answer = b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: 2\r\n\r\nok"
    async with scripted(answer) as (url, heads), live_proxy(url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: p\r\nX-Mine: na\xefve\r\nConnection: close\r\n\r\n")
        seen = await reader.read()
        writer.close()
    assert b"caf\xe9" in seen
    assert b"na\xefve\r\n" in heads[0]


async def raw(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    seen = await reader.read()
    writer.close()
    return seen


@pytest.mark.parametrize("body", [b"hello", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"])
async def test_an_answer_that_has_no_body_has_none_whatever_comes_behind_it(body):
    """In one read with its head or in another one: 204, and the connection is not used again."""
    answer = b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with scripted(answer, PLAIN) as (url, heads), live_proxy(url) as proxy:
        seen = await raw(proxy.port, b"GET /x HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")
        again = await raw(proxy.port, b"GET /x HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")
    assert seen.startswith(b"HTTP/1.1 204 ")
    assert seen.endswith(b"\r\n\r\n")
    assert again.endswith(b"ok")
    assert len(heads) == 2


async def test_a_status_beyond_those_of_http_passes():
    """Some servers have them; the client gets what the upstream said."""
    async with (
        scripted(b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok") as (url, _),
        live_proxy(url) as proxy,
        httpx.AsyncClient() as client,
    ):
        seen = await client.get(f"{proxy.url}/x")
        [root] = await proxy.sink.wait_for(1)
    assert (seen.status_code, seen.content) == (999, b"ok")
    assert (root[semconv.STATUS], root[semconv.HTTP_RESPONSE_STATUS_CODE]) == ("error", 999)


@pytest.mark.parametrize("stream", [b"text/event-stream", b"text/plain"])
async def test_a_client_of_http_1_0_gets_no_chunks(stream):
    """It would take their sizes for a part of the body; the connection's end is the body's."""
    body = b"data: [DONE]\n\n"
    answer = (b"HTTP/1.1 200 OK\r\nContent-Type: " + stream + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
              + b"%x\r\n%b\r\n" % (len(body), body) * 2 + b"0\r\n\r\n")  # fmt: skip
    async with scripted(answer) as (url, _), live_proxy(url) as proxy:
        seen = await raw(
            proxy.port, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
        )
        [root] = await proxy.sink.wait_for(1)
    head, _, got = seen.partition(b"\r\n\r\n")
    assert got == body * 2
    assert b"transfer-encoding" not in head
    assert root[semconv.STATUS] == "ok"


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"OPTIONS * HTTP/1.1\r\n", b"OPTIONS * HTTP/1.1\r\n"),
        (b"GET //a%2Fb/../c;d?e=[1]?&%zz= HTTP/1.1\r\n", b"GET //a%2Fb/../c;d?e=[1]?&%zz= HTTP/1.1\r\n"),
        (b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n", b"\r\ncontent-length: 0\r\n"),
    ],
    ids=["the server as a whole", "odd path and query", "a body of no bytes"],
)
async def test_a_request_goes_on_as_it_was_asked(sent, got):
    """And none that a client may write is held against the upstream."""
    async with (
        scripted(PLAIN) as (url, heads),
        live_proxy(url + "/v1" if b"*" in sent else url, eject_after_failures=1) as proxy,
    ):
        seen = await raw(proxy.port, sent + b"Host: p\r\nConnection: close\r\n\r\n")
    assert seen.startswith(b"HTTP/1.1 200 ")
    assert got in heads[0]


async def test_trailers_of_a_request_are_no_headers():
    """They come after the door has looked at the headers, and go no further."""
    request = (b"POST /x HTTP/1.1\r\nHost: p\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"3\r\nabc\r\n0\r\nX-Late: 1\r\nAuthorization: Bearer late\r\n\r\n")  # fmt: skip
    async with scripted(PLAIN) as (url, heads), live_proxy(url) as proxy:
        seen = await raw(proxy.port, request)
    assert seen.endswith(b"ok")
    assert b"late" not in heads[0].lower()


async def test_a_coding_that_nobody_takes_off_is_refused():
    """The server would take off the chunks only, and the rest would go on without its name."""
    request = (b"POST /x HTTP/1.1\r\nHost: p\r\nConnection: close\r\n"
               b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")  # fmt: skip
    async with scripted(PLAIN) as (url, heads), live_proxy(url) as proxy:
        seen = await raw(proxy.port, request)
    assert seen.startswith(b"HTTP/1.1 501 ")
    assert not heads


CHUNKED = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"5\r\nhello\r\n6\r\n world\r\n0\r\nT: x\r\n\r\n")  # fmt: skip


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_response(cuts):
    """Head, body and end do not depend on where reads end."""
    at = [0, *sorted(cuts), len(CHUNKED)]
    message = ResponseMessage(headless=False)
    body = b"".join(message.feed(CHUNKED[a:b]) for a, b in pairwise(at))
    assert (message.status, dict(message.headers)[b"A"], body) == (200, b"1", b"hello world")
    assert message.complete
    assert message.reusable


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_response_or_a_bad_one(data, headless):
    """Nothing else is raised, whatever an upstream sends."""
    message = ResponseMessage(headless)
    try:
        message.feed(b"HTTP/1.1 200 OK\r\n" + data)
        message.feed(data)
    except BadResponse:
        pass
