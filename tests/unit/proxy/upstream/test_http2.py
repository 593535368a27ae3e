"""An upstream that speaks HTTP/2: same bytes, same records, and leaving it stops it."""

from __future__ import annotations

import asyncio
import json
import random

import httpx
import pytest
import trustme
from h2.events import RequestReceived, StreamReset

from proxy.settings import AccessSettings, UpstreamTarget
from tests.fake_llm.dialects import DONE, ROLE, content
from tests.support.live_http2 import Breaking, live_http2
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
SSE = [(b"content-type", b"text/event-stream")]
BIG = random.Random(7).randbytes(6 << 20)


class Upstream:
    """Streams an answer, or what its path asks for; knows how it was asked."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.clients: set[object] = set()
        self.gate = asyncio.Event()
        self.left = asyncio.Event()
        self.bodies: list[bytes] = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        self.versions.append(scope["http_version"])
        self.clients.add(scope["client"])
        self.bodies.append(await _body(receive))
        if scope["path"] == "/big":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": BIG})
            return
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        for part in (ROLE, content("a")):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        leaving = asyncio.create_task(self._leave(receive))
        await asyncio.wait(
            {leaving, asyncio.create_task(self.gate.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        leaving.cancel()
        for part in (content("b"), DONE):
            await send({"type": "http.response.body", "body": part, "more_body": part is not DONE})

    async def _leave(self, receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


async def _body(receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def target(url: str, **more: object) -> UpstreamTarget:
    return UpstreamTarget(url=url, http2=True, **more)


async def test_a_stream_passes_byte_for_byte_and_chunk_by_chunk():
    """The first token is there before the last is made; the record is as over HTTP/1.1."""
    app = Upstream()
    async with (
        live_http2(app) as url, live_proxy(target(url)) as proxy, httpx.AsyncClient() as client
    ):  # fmt: skip
        got = b""
        body = {"model": "m", "stream": True}
        async with client.stream("POST", proxy.url + CHAT, json=body) as answer:
            async for part in answer.aiter_raw():
                got += part
                if b'"a"' in got:
                    app.gate.set()
        [root] = await proxy.sink.wait_for(1)
    assert got == ROLE + content("a") + content("b") + DONE
    assert app.versions == ["2"]
    assert root[semconv.STATUS] == "ok"
    assert 0 < root[semconv.FIRST_TOKEN_NS] < root[semconv.E2E_NS]


async def test_requests_at_once_share_one_connection():
    """Ten requests, one connection; the later ones say that they reused it."""
    app = Upstream()
    app.gate.set()
    async with (
        live_http2(app) as url, live_proxy(target(url)) as proxy, httpx.AsyncClient() as client
    ):  # fmt: skip
        body = {"model": "m", "stream": True}
        answers = await asyncio.gather(
            *(client.post(proxy.url + CHAT, json=body) for _ in range(10))
        )
        await proxy.sink.wait_for(10)
        calls = [s for r in proxy.sink.requests for s in r if s.name.startswith("chat")]
    assert [a.status_code for a in answers] == [200] * 10
    assert len(app.clients) == 1
    reused = sorted(bool(c.attributes[semconv.CONNECTION_REUSED]) for c in calls)
    assert reused == [False] + [True] * 9


async def test_a_client_that_leaves_resets_the_upstreams_stream_and_nobody_elses():
    """The one stream is cancelled; another one on the same connection goes on to its end."""
    app = Upstream()
    async with (
        live_http2(app) as url, live_proxy(target(url)) as proxy, httpx.AsyncClient() as client
    ):  # fmt: skip
        body = {"model": "m", "stream": True}
        other = asyncio.create_task(client.post(proxy.url + CHAT, json=body))
        raw = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % (CHAT.encode(), len(raw)) + raw
        )
        await reader.readuntil(b'"a"')
        while len(app.versions) < 2:  # noqa: ASYNC110  a count, not an event
            await asyncio.sleep(0.01)
        writer.close()
        await asyncio.wait_for(app.left.wait(), 5)
        app.gate.set()
        whole = await other
        roots = await proxy.sink.wait_for(2)
    assert whole.content.endswith(DONE)
    assert sorted(str(r[semconv.STATUS]) for r in roots) == ["cancelled", "ok"]


@pytest.mark.parametrize("how", ["reset", "goaway", "hang_up", "nonsense"])
async def test_an_upstream_that_breaks_off_mid_stream_breaks_the_client_off(how):
    """The client has the first part and no regular end; the record is ERROR."""

    def begin(protocol: Breaking, stream_id: int) -> None:
        wire = protocol.wire
        wire.send_headers(stream_id, [(":status", "200"), ("content-type", "text/event-stream")])
        wire.send_data(stream_id, ROLE + content("par"))
        protocol.transport.write(wire.data_to_send())
        if how == "reset":
            wire.reset_stream(stream_id, 2)
        elif how == "goaway":
            wire.close_connection(last_stream_id=0)
        elif how == "nonsense":  # DATA on stream 0, apart from what came before it
            asyncio.get_running_loop().call_later(0.2, protocol.transport.write, bytes(9))
        protocol.transport.write(wire.data_to_send())
        if how == "hang_up":
            protocol.transport.close()

    server = await asyncio.get_running_loop().create_server(lambda: Breaking(begin), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        live_proxy(target(f"http://127.0.0.1:{port}")) as proxy, httpx.AsyncClient() as client
    ):  # fmt: skip
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
        [root] = await proxy.sink.wait_for(1)
    server.close()
    assert root[semconv.STATUS] == "error"
    assert root[semconv.ERROR_TYPE] == "upstream_disconnect"
    assert root[semconv.FIRST_TOKEN_NS] > 0


async def test_bodies_larger_than_every_window_pass_whole_in_both_directions():
    """6 MiB up and 6 MiB down: flow control stops and goes, no byte is lost."""
    app = Upstream()
    async with (
        live_http2(app) as url, live_proxy(target(url)) as proxy,
        httpx.AsyncClient(timeout=60) as client,
    ):  # fmt: skip
        answer = await client.post(proxy.url + "/big", content=BIG)
    assert app.bodies == [BIG]
    assert answer.content == BIG


async def test_tls_chooses_http2_and_its_time_is_told(tmp_path, monkeypatch):
    """ALPN says h2; DNS, connect and TLS have their times."""
    app = Upstream()
    app.gate.set()
    cert = make_cert(tmp_path, monkeypatch)
    async with (
        live_http2(app, cert) as url, live_proxy(target(url)) as proxy,
        httpx.AsyncClient(verify=False) as client,
    ):  # fmt: skip
        await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
        await proxy.sink.wait_for(1)
    call = next(s for s in proxy.sink.requests[0] if s.name.startswith("chat"))
    assert app.versions == ["2"]
    for name in (semconv.DNS_NS, semconv.CONNECT_NS, semconv.TLS_NS):
        assert call.attributes[name] > 0


async def test_an_upstream_whose_tls_chooses_http_1_is_spoken_to_in_that(tmp_path, monkeypatch):
    """No h2 in its ALPN: the request goes by HTTP/1.1, also the second one."""
    app = Upstream()
    app.gate.set()
    cert = make_cert(tmp_path, monkeypatch)
    async with (
        live_http2(app, cert, ("http/1.1",)) as url,
        live_proxy(target(url, verify_tls=False)) as proxy,
        httpx.AsyncClient(verify=False) as client,
    ):
        for _ in range(2):
            answer = await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
            assert answer.content.endswith(DONE)
    assert app.versions == ["1.1", "1.1"]


async def test_a_certificate_nobody_vouches_for_is_a_502(tmp_path, monkeypatch):
    """The upstream cannot be reached as it asked to be; its address is named, no detail."""
    cert = make_cert(tmp_path, monkeypatch, trusted=False)
    async with (
        live_http2(Upstream(), cert) as url, live_proxy(target(url)) as proxy,
        httpx.AsyncClient(verify=False) as client,
    ):  # fmt: skip
        answer = await client.post(proxy.url + CHAT, json={"model": "m"})
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "upstream_unreachable"


def make_cert(folder, monkeypatch, *, trusted: bool = True):
    """Certificate and key of localhost, by an authority that OpenSSL trusts if ``trusted``."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key, root = folder / "chain.pem", folder / "key.pem", folder / "root.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(root)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(root))
    return chain, key


@pytest.mark.parametrize("status", ["abc", "", "99999"])
async def test_an_answer_with_no_status_of_http_is_a_502(status):
    """Nobody waits for a head that came and could not be read."""

    def begin(protocol: Breaking, stream_id: int) -> None:
        protocol.wire.send_headers(stream_id, [(":status", status)], end_stream=True)

    server = await asyncio.get_running_loop().create_server(lambda: Breaking(begin), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, live_proxy(target(url)) as proxy, httpx.AsyncClient() as client:
        answer = await client.get(proxy.url + "/x", timeout=10)
        await proxy.sink.wait_for(1)
    assert answer.status_code == 502


async def test_an_upload_that_is_refused_after_the_answer_began_ends_the_answer_too():
    """The upstream would wait for the rest of the body for ever, and the client for the answer."""

    class Early(Breaking):
        def data_received(self, data: bytes) -> None:
            for event in self.wire.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.wire.send_headers(event.stream_id, [(":status", "200")])
                elif isinstance(event, StreamReset):
                    left.set()
            self.transport.write(self.wire.data_to_send())

    left = asyncio.Event()
    server = await asyncio.get_running_loop().create_server(lambda: Early(None), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    access = AccessSettings(max_request_bytes=1000)
    async with server, live_proxy(target(url), access=access) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"7d0\r\n" + b"x" * 2000 + b"\r\n")
        assert not (await asyncio.wait_for(reader.read(), 10)).endswith(b"0\r\n\r\n")
        await asyncio.wait_for(left.wait(), 10)
        [root] = await proxy.sink.wait_for(1)
        writer.close()
    assert root[semconv.STATUS] == "error"
