"""What may be sent a second time, where to, and on which connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import httpx
import pytest
from h2.errors import ErrorCodes
from h2.events import RequestReceived, StreamEnded

from proxy.settings import UpstreamTarget
from tests.fake_llm.server import Reply, Reset, fake_llm
from tests.support.live_http2 import Breaking
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
OTHER = "/v1/batches"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LONG = b"x" * 3_000_000
"""More than is read ahead."""


class Forgetful:
    """Answers one request on each connection and resets it at the next one, as after a restart.

    ``begun``: requests whose head it has seen.
    """

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.held = asyncio.Event()
        self.held.set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._request(reader)
            await self.held.wait()
            writer.write(OK)
            await writer.drain()
            await self._request(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.begun.append(head.split(b"\r\n")[0])
        size = next((s for s in head.lower().split(b"\r\n") if s.startswith(b"content-length")), b":0")
        await reader.readexactly(int(size.partition(b":")[2]))


@asynccontextmanager
async def forgetful() -> AsyncIterator[Forgetful]:
    made = Forgetful()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 24)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


@contextmanager
def refusing() -> Iterator[str]:
    """A port where nobody listens, held so that nobody else will."""
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


async def together(fake: Forgetful, client: httpx.AsyncClient, url: str, count: int) -> None:
    """Leave ``count`` connections idle."""
    fake.held.clear()
    asking = [asyncio.create_task(client.post(url, json={"model": "m"})) for _ in range(count)]
    while len(fake.begun) < count:  # noqa: ASYNC110  a list, not an event
        await asyncio.sleep(0.005)
    fake.held.set()
    await asyncio.gather(*asking)


async def test_idle_connections_that_all_died_cost_one_more_attempt_and_no_error():
    """The second attempt makes a connection of its own, and does not try the next dead one."""
    async with (
        forgetful() as fake,
        live_proxy(fake.url, max_attempts=2) as proxy,
        httpx.AsyncClient() as client,
    ):
        await together(fake, client, proxy.url + CHAT, 3)
        answer = await client.post(proxy.url + CHAT, json={"model": "m"})
        roots = await proxy.sink.wait_for(4)
    assert answer.status_code == 200
    assert roots[-1][semconv.STATUS] == "ok"
    attempts = [s for s in proxy.sink.requests[-1] if s.name == "chat m"]
    reused = [a.attributes[semconv.CONNECTION_REUSED] for a in attempts]
    assert reused == [True, False]


async def test_a_dead_idle_connection_says_nothing_of_its_upstreams_health():
    """One failure would make it rest; it is asked again instead."""
    async with (
        forgetful() as fake,
        forgetful() as other,
        live_proxy(fake.url, other.url, eject_after_failures=1, eject_s=60.0) as proxy,
        httpx.AsyncClient() as client,
    ):
        statuses = [
            (await client.post(proxy.url + CHAT, json={"model": "m"})).status_code for _ in range(12)
        ]
    assert statuses == [200] * 12
    assert min(len(fake.begun), len(other.begun)) >= 4


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, LONG), (OTHER, b"{}")], ids=["too long to keep", "done once only"]
)
async def test_what_cannot_be_sent_again_goes_on_no_idle_connection(path, body):
    """It is neither refused because one died, nor done twice."""
    async with (
        forgetful() as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={"model": "m"})
        statuses = [(await client.post(proxy.url + path, content=body)).status_code for _ in range(3)]
    assert statuses == [200] * 3
    assert len([b for b in fake.begun if path.encode() in b]) == 3 + (path == CHAT)


@pytest.mark.parametrize(
    ("method", "path", "status", "asked"),
    [("POST", CHAT, 200, 1), ("POST", OTHER, 502, 0), ("PUT", OTHER, 200, 1), ("GET", OTHER, 200, 1)],
)
async def test_only_what_may_be_done_twice_is_sent_to_another_upstream(method, path, status, asked):
    """The first upstream had the request, and died: a POST of no known effect may be done already."""
    async with (
        fake_llm(Reply([Reset()], head_first=False)) as first,
        fake_llm(Reply([b"ok"], content_type="text/plain")) as second,
        live_proxy(first.url, second.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.request(method, proxy.url + path, content=b"{}")
        await proxy.sink.wait_for(1)
    assert answer.status_code == status
    assert (len(first.requests), len(second.requests)) == (1, asked)


@pytest.mark.parametrize("body", [b"{}", LONG], ids=["short", "too long to keep"])
async def test_where_no_connection_came_about_any_request_goes_elsewhere(body):
    """Nobody can have begun with it, and nothing of a streamed body is gone."""
    with refusing() as nobody:
        async with (
            fake_llm(Reply([b"ok"], content_type="text/plain")) as fake,
            live_proxy(nobody, fake.url) as proxy,
            httpx.AsyncClient() as client,
        ):
            answer = await client.post(proxy.url + OTHER, content=body)
            await proxy.sink.wait_for(1)
    assert answer.status_code == 200
    assert [r.body for r in fake.requests] == [body]


@pytest.mark.parametrize("how", ["refused stream", "goaway"])
async def test_a_stream_that_an_upstream_would_not_begin_is_sent_again(how):
    """HTTP/2 says so in words: also what must be done once only, and no failure of the upstream."""
    seen: list[Breaking] = []

    class Choosy(Breaking):
        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            seen.append(self)

        def data_received(self, data: bytes) -> None:
            for event in self.wire.receive_data(data):
                if isinstance(event, RequestReceived) and len(turned_away) == 0:
                    turned_away.append(event.stream_id)
                    if how == "goaway":
                        self.wire.close_connection(last_stream_id=0)
                    else:
                        self.wire.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                elif isinstance(event, StreamEnded) and event.stream_id not in turned_away[: len(seen) == 1]:
                    self.wire.send_headers(event.stream_id, [(":status", "200")])
                    self.wire.send_data(event.stream_id, b"ok", end_stream=True)
            self.transport.write(self.wire.data_to_send())

    turned_away: list[int] = []
    server = await asyncio.get_running_loop().create_server(lambda: Choosy(None), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        live_proxy(UpstreamTarget(url=url, http2=True)) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + OTHER, content=b"{}")
        await proxy.sink.wait_for(1)
        for one in seen:
            one.transport.close()
    assert (answer.status_code, answer.content) == (200, b"ok")
