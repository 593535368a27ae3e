"""Either side may leave at any time: the other one learns of it, and one record says so."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.fake_llm.dialects import DONE, ROLE, content
from tests.fake_llm.server import Gate, Hang, Pause, Reply, Reset, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"


def request(path: str = CHAT, **body: object) -> bytes:
    raw = json.dumps(body).encode()
    return (
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (path.encode(), len(raw))
    ) + raw


@pytest.mark.parametrize("how", ["reset", "close_in_chunk", "end_without_done", "short_length"])
async def test_an_upstream_that_breaks_off_breaks_the_client_off_too(how):
    """The client has "par" and no regular end; ERROR upstream_disconnect, one record (faults 8)."""
    gate = asyncio.Event()
    body = [ROLE, content("par")]
    reply = {
        "reset": Reply([*body, Gate(gate), Reset()]),
        "close_in_chunk": Reply(
            [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
             b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in body), Gate(gate), b"ff\r\ndata: {"],
            framing="raw",
        ),
        "end_without_done": Reply([*body, Gate(gate)]),
        "short_length": Reply(
            [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 4000\r\n\r\n",
             *body, Gate(gate)],
            framing="raw",
        ),
    }[how]  # fmt: skip
    async with fake_llm(reply) as fake, live_proxy(fake.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(request(stream=True))
        seen = await reader.readuntil(b"par")
        gate.set()
        rest = await reader.read()
        [root] = await proxy.sink.wait_for(1)
        writer.close()
        assert len(proxy.sink.requests) == 1
    assert b"par" in seen
    assert not rest.endswith(b"0\r\n\r\n")
    assert root[semconv.STATUS] == "error"
    assert root[semconv.ERROR_TYPE] == "upstream_disconnect"
    assert root[semconv.FIRST_TOKEN_NS] > 0
    call = next(s for s in proxy.sink.requests[0] if s.name.startswith("chat"))
    assert call.status.status_code.name == "ERROR"


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        ({"stream": False}, [Hang()]),
        ({"stream": True}, [Hang()]),
        ({"stream": True}, [ROLE, content("a"), Hang()]),
    ],
    ids=["whole", "before the first byte", "in the stream"],
)
async def test_a_client_that_leaves_ends_the_upstreams_work_at_once(body, steps):
    """Upstream's connection closed within 100 ms, one cancelled record each (faults 38).

    A busy machine may be late with it a few times, a proxy that does not do it always is.
    """
    reply = Reply(steps, head_first=False)
    took_s: list[float] = []
    async with fake_llm(reply) as fake, live_proxy(fake.url) as proxy:
        while not took_s or (min(took_s) > 0.1 and len(took_s) < 10):
            fake.asked.clear()
            fake.left.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(request(**body))
            await fake.asked.wait()
            if len(steps) > 1:
                await reader.readuntil(b'"a"')
            left_at_s = asyncio.get_running_loop().time()
            writer.close()
            await asyncio.wait_for(fake.left.wait(), 20)
            took_s.append(fake.left_at_s - left_at_s)
            [*_, root] = await proxy.sink.wait_for(len(took_s))
        assert min(took_s) < 0.1
        assert len(proxy.sink.requests) == len(took_s)
    assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("cancelled", "client_disconnect")
    assert (semconv.FIRST_TOKEN_NS in root) == (len(steps) > 1)


async def test_a_client_that_leaves_after_done_missed_nothing():
    """[DONE] came, only the connection's last byte did not: that is no cancelled request."""
    reply = Reply([ROLE, content("a", "stop"), DONE, Hang()])
    async with fake_llm(reply) as fake, live_proxy(fake.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(request(stream=True))
        await reader.readuntil(b"[DONE]")
        writer.close()
        [root] = await proxy.sink.wait_for(1)
    assert root[semconv.STATUS] == "ok"


async def test_a_slow_upload_that_breaks_off_is_one_cancelled_record():
    """The client leaves inside its request's body: nothing is answered, one record."""
    async with fake_llm(Reply([b"x"])) as fake, live_proxy(fake.url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nbegin")
        await asyncio.wait_for(fake.connected.wait(), 5)
        writer.close()
        [root] = await proxy.sink.wait_for(1)
    assert root[semconv.STATUS] == "cancelled"


async def test_cancelled_requests_use_up_no_connections():
    """Twenty clients leave at odd moments, over and over; then ten normal ones succeed (faults 46)."""
    reply = Reply([ROLE, content("a"), Hang()])
    async with fake_llm(reply) as fake, live_proxy(fake.url) as proxy:

        async def worker(number: int) -> None:
            for turn in range(10):
                _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(request(stream=True))
                await asyncio.sleep((number * 7 + turn * 3) % 50 / 1000)
                writer.close()

        await asyncio.gather(*(worker(n) for n in range(20)))
        fake.script = lambda _: Reply([ROLE, content("a", "stop"), DONE])
        async with httpx.AsyncClient() as client:
            answers = await asyncio.gather(
                *(client.post(proxy.url + CHAT, json={"stream": True}) for _ in range(10))
            )
        roots = await proxy.sink.wait_for(200)
        while [r[semconv.STATUS] for r in roots].count("ok") < 10:  # they may be the last to be recorded
            roots = await proxy.sink.wait_for(len(roots) + 1)
    assert [a.status_code for a in answers] == [200] * 10


async def test_an_upstream_that_is_not_there_is_a_502_and_a_silent_one_a_504():
    """In OpenAI's error form; no first token in time is a 504, or breaks off what has begun."""
    async with (
        fake_llm(Reply([Hang()], head_first=False)) as silent,
        fake_llm(Reply([ROLE, Hang()])) as begun,
        httpx.AsyncClient() as client,
    ):
        async with live_proxy("http://127.0.0.1:9") as proxy:
            refused = await client.post(proxy.url + CHAT, json={})
            [root] = await proxy.sink.wait_for(1)
        async with live_proxy(silent.url, first_token_timeout_s=0.2) as proxy:
            late = await client.post(proxy.url + CHAT, json={"stream": True})
            [late_root] = await proxy.sink.wait_for(1)
        async with live_proxy(begun.url, first_token_timeout_s=0.2) as proxy:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(proxy.url + CHAT, json={"stream": True})
            [begun_root] = await proxy.sink.wait_for(1)
    assert refused.status_code == 502
    assert refused.json()["error"]["type"] == "upstream_unreachable"
    assert root[semconv.ERROR_TYPE] == "upstream_unreachable"
    assert late.status_code == 504
    assert late_root[semconv.ERROR_TYPE] == "first_token_timeout"
    assert (begun_root[semconv.STATUS], begun_root[semconv.ERROR_TYPE]) == (
        "error", "first_token_timeout",
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/odd/events", "/v1/audio/speech", "/v1/models"])
async def test_the_limit_for_the_first_token_spares_streams_in_which_none_would_be_seen(path):
    """Their beginning is enough, as a whole answer's is; they may run as long as they like."""
    reply = Reply([b"data: a\n\n", Pause(0.5), b"data: b\n\n"])
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url, first_token_timeout_s=0.25) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + path, json={"stream": True})
        [root] = await proxy.sink.wait_for(1)
    assert answer.content == b"data: a\n\ndata: b\n\n"
    assert root[semconv.STATUS] == "ok"


async def test_an_upstream_that_gives_no_first_token_in_time_rests():
    """Otherwise the silent one, which has nothing in flight, would be asked again and again."""
    async with (
        fake_llm(Reply([Hang()], head_first=False)) as silent,
        fake_llm(Reply([content("a", "stop"), DONE])) as good,
        live_proxy(
            silent.url, good.url, first_token_timeout_s=0.5, eject_after_failures=1, eject_s=60.0
        ) as proxy,
        httpx.AsyncClient() as client,
    ):
        for _ in range(6):
            await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
    assert len(silent.requests) == 1


async def test_a_connect_time_out_is_a_504():
    """A peer whose queue of connections is full never answers."""
    import socket

    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    held = [socket.socket() for _ in range(4)]
    for one in held:
        one.setblocking(False)
        one.connect_ex(full.getsockname())
    try:
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with live_proxy(url, connect_timeout_s=0.3) as proxy, httpx.AsyncClient() as client:
            answer = await client.post(proxy.url + CHAT, json={})
    finally:
        for one in (*held, full):
            one.close()
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "upstream_connect_timeout"


async def test_a_slow_client_holds_the_upstream_back():
    """Back-pressure: what nobody reads is not taken from the upstream and not kept."""
    sent = 0
    block = b"x" * 65536

    def script(_: object) -> Reply:
        return Reply([block] * 2000, content_type="application/octet-stream")

    async with fake_llm(script) as fake, live_proxy(fake.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=65536)
        writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.5)
        assert not proxy.sink.requests
        while part := await reader.read(1 << 20):
            sent += len(part)
            if part.endswith(b"0\r\n\r\n"):
                break
        writer.close()
        [root] = await proxy.sink.wait_for(1)
    assert sent > 2000 * 65536
    assert root[semconv.STATUS] == "ok"
