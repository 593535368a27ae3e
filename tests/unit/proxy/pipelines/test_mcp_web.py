"""HTTP towards MCP servers, and servers that come up later."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from proxy.errors import ProxyError
from proxy.pipelines import web
from proxy.pipelines.runs import Trace
from proxy.pipelines.tools.kit import ReadyTool
from proxy.pipelines.tools.later import started_later
from proxy.pipelines.tools.mcp_web import GONE, MOST_ASIDE, WATCH, Watch, make_client
from tests.fake_llm.server import Gate, Pause, Reply, Step, fake_llm
from tests.support.held import held, nothing_more_than

NAME = "tools.example"
OK = Reply([b"{}"], content_type="application/json", framing="length")


@contextmanager
def watched() -> Iterator[Watch]:
    """As a call is."""
    token = WATCH.set(watch := Watch())
    try:
        yield watch
    finally:
        WATCH.reset(token)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that leads ``NAME`` to this machine."""
    real = socket.getaddrinfo

    def resolve(host: object, *args: object, **more: object) -> object:
        name = host.decode() if isinstance(host, bytes) else host
        return real("127.0.0.1" if name == NAME else name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.usefixtures("resolver")
async def test_a_name_that_leads_to_a_hidden_address_is_refused_unless_it_is_named():
    """Refused before a connection is made, and noted for the call; named, it is asked."""
    async with fake_llm(OK) as server:
        url = f"http://{NAME}:{server.port}/mcp"
        async with make_client({}, 1000, ()) as client:
            with pytest.raises(httpx2.ConnectError, match="not public"):
                await client.post(url, json={})
            with watched() as watch:
                assert (await client.post(url, json={})).status_code == 503
        assert server.connections == 0
        assert watch.refused is not None
        assert watch.refused.kind == "host_refused"
        async with make_client({"x-key": "k"}, 1000, (NAME,)) as client:
            assert (await client.post(url, json={})).status_code == 200
    assert server.requests[0].header("x-key") == "k"


@pytest.mark.usefixtures("resolver")
async def test_the_address_that_was_checked_is_the_one_connected_to(
    monkeypatch: pytest.MonkeyPatch,
):
    """The request goes to the address and still names the host."""
    monkeypatch.setattr(web, "is_public", lambda _: True)
    async with fake_llm(OK) as server, make_client({}, 1000, ()) as client:
        await client.post(f"http://{NAME}:{server.port}/mcp", json={})
    assert server.requests[0].header("host") == f"{NAME}:{server.port}"


async def test_an_answer_is_cut_off_at_the_limit():
    """The rest is not read, and the call is told apart from a server that went."""
    long = Reply([b"x" * 100_000] * 50, content_type="application/json")
    async with fake_llm(long) as server, make_client({}, 150_000, ()) as client:
        with watched() as watch, pytest.raises(httpx2.StreamError, match="longer than 150000 bytes"):
            await client.post(server.url, json={})
    assert watch.too_large


async def test_a_packed_answer_is_refused():
    """It was not asked for, and what it unpacks to is not counted."""
    packed = Reply([gzip.compress(b"x" * 10_000_000)], content_type="application/json",
                   headers=[("Content-Encoding", "gzip")])  # fmt: skip
    async with fake_llm(packed) as server, make_client({}, 150_000, ()) as client:
        with watched() as watch:
            assert (await client.post(server.url, json={})).status_code == 503
    assert server.requests[0].header("accept-encoding") == "identity"
    assert watch.refused is not None
    assert watch.refused.kind == "bad_answer"


@pytest.mark.parametrize("steps", [[b"{}"], [b"data: {}\n\n", Pause(0.02), b": end\n\n"]])
async def test_a_connection_is_used_again(steps: list[Step]):
    """Also after an event stream that its reader leaves at its last event, a moment before its end."""
    async with fake_llm(Reply(steps)) as server, make_client({}, 1000, ()) as client:
        for _ in range(3):
            async with client.stream("POST", server.url, json={}) as answer:
                async for _part in answer.aiter_raw():
                    break
    assert len(server.requests) == 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "message",
    [{"method": "notifications/cancelled"}, {"id": 1, "result": {}}, {"id": 1, "error": {}}],
)
async def test_what_needs_no_answer_is_sent_aside(message: dict[str, object]):
    """A server that never takes it holds up nobody, at the end neither; past a number it is dropped."""
    never = asyncio.Event()
    async with fake_llm(Reply([Gate(never)], head_first=False)) as server:
        before = held()
        async with make_client({}, 1000, ()) as client:
            for _ in range(MOST_ASIDE + 5):
                answer = await asyncio.wait_for(client.post(server.url, json=message), 10)
                assert answer.status_code == 202
            async with asyncio.timeout(10):
                while len(server.requests) < MOST_ASIDE:  # noqa: ASYNC110  no other sign
                    await asyncio.sleep(0.01)
        assert len(server.requests) == MOST_ASIDE
        await nothing_more_than(before)


async def test_a_server_that_is_down_fails_the_call_and_no_other():
    """To the client it is an answer with an error: an exception would end the session of all."""
    async with make_client({}, 1000, ()) as client:
        with watched():
            answer = await client.post("http://127.0.0.1:9/mcp", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, GONE)
        with pytest.raises(httpx2.ConnectError):
            await client.post("http://127.0.0.1:9/mcp", json={})


class Late:
    """Tools that are there at the third try."""

    def __init__(self) -> None:
        self.tries = 0
        self.came = asyncio.Event()

    async def start(self) -> list[ReadyTool]:
        self.tries += 1
        if self.tries < 3:
            raise ProxyError("down")
        asyncio.get_running_loop().call_soon(self.came.set)
        return [ReadyTool("t", "", {}, 1.0, 10, self._call)]

    async def close(self) -> None:
        return

    async def _call(self, _arguments: dict[str, object], _trace: Trace) -> str:
        return ""


async def test_tools_of_a_server_that_was_down_are_there_once_it_is_up():
    """It is tried until it answers; then its tools are the pipeline's."""
    tools: dict[str, ReadyTool] = {}
    late = Late()
    async with started_later(late, tools, first_s=0.001):
        async with asyncio.timeout(10):
            await late.came.wait()
    assert (late.tries, list(tools)) == (3, ["t"])


async def test_leaving_ends_the_trying():
    """No task stays behind."""
    async with started_later(Late(), {}, first_s=60):
        pass
    assert len(asyncio.all_tasks()) == 1
