"""What goes wrong in a pipeline's tools and retrievals: told, recorded once, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.fake_llm.dialects import asks_tools, whole_tools
from tests.fake_llm.server import Asked, FakeLlm, Hang, Reply, Reset, fake_llm
from tests.support.held import held, nothing_more_than
from tests.support.live_proxy import LiveProxy, live_proxy
from tests.support.pipelines import ANSWER, CHAT, USER, bot, chunks, leave_after, text_of, tool
from tracer import semconv

MCP = (sys.executable, "-m", "tests.support.mcp_server")
OPENAPI = {
    "openapi": "3.1.0",
    "paths": {f"/{name}": {"get": {"operationId": name}} for name in ("hang", "fail", "much", "die")},
}
REPLIES = {
    "/hang": Reply([Hang()], head_first=False),
    "/fail": Reply([b"{}"], status=500, content_type="application/json", framing="length"),
    "/much": Reply([b"x" * 1_000_000] * 10, content_type="application/json"),
    "/die": Reply([b'{"a":', Reset()], content_type="application/json"),
}


@dataclass
class Model:
    """Answers by the script that a test sets before it asks."""

    left: list[Reply] = field(default_factory=list)

    def __call__(self, _: Asked) -> Reply:
        return self.left.pop(0)


@dataclass
class Bench:
    """A running pipeline with every kind of tool, and the model that asks for them."""

    proxy: LiveProxy
    fake: FakeLlm
    model: Model
    client: httpx.AsyncClient

    async def ask(self, *replies: Reply, **body: object) -> httpx.Response:
        self.model.left = list(replies)
        self.fake.requests.clear()
        given = {"model": "bot", "messages": USER, "stream": True, **body}
        return await self.client.post(self.proxy.url + CHAT, json=given)

    async def root(self, number: int) -> dict[str, object]:
        """The record of request ``number``, after a moment in which a second one could come."""
        await self.proxy.sink.wait_for(number)
        await asyncio.sleep(0.05)
        assert len(self.proxy.sink.requests) == number
        return dict(self.proxy.sink.requests[-1][0].attributes or {})


@asynccontextmanager
async def mcp_over_http() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(*MCP, str(port), stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(30):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    await writer.wait_closed()
                    break
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def bench(kind: str, folder: Path) -> AsyncIterator[Bench]:
    """A pipeline with the tools of ``kind``, and the server that they need."""
    model = Model()
    async with (
        mcp_over_http() if kind == "mcp-http" else _nothing() as mcp_url,
        fake_llm(lambda asked: REPLIES[asked.target]) as api,
        fake_llm(model) as fake,
        httpx.AsyncClient(timeout=30) as client,
    ):
        patience = 0.5 if kind in ("python", "openapi") else 15.0  # processes of their own
        limits = {"timeout_s": patience, "max_result_bytes": 20_000}
        names = ("echo", "wait", "fail", "much", "die")
        if kind == "python":
            given = [tool(name, **limits) for name in ("hang", "fail", "much", "add")]
        elif kind == "isolated":
            names = ("hang_for_ever", "fail", "much", "exit_at_once")
            given = [tool(n, isolated=True, **limits) for n in names]
        elif kind == "openapi":
            document = folder / "api.json"
            document.write_text(json.dumps(OPENAPI))
            host = f"127.0.0.1:{api.port}"
            given = [{"kind": "openapi", "document": str(document), "base_url": api.url,
                      "operations": [path.removeprefix("/") for path in OPENAPI["paths"]],
                      "allow_hosts": [host], "private_hosts": ["127.0.0.1"], **limits}]  # fmt: skip
        else:
            way = {"url": mcp_url} if kind == "mcp-http" else {"command": list(MCP)}
            given = [{"kind": "mcp", "tools": names, **way, **limits}]
        async with live_proxy(fake.url, pipelines=bot(tools=given, max_rounds=4)) as proxy:
            yield Bench(proxy, fake, model, client)


@asynccontextmanager
async def _nothing() -> AsyncIterator[str]:
    yield ""


FAULTS = [
    ("python", "hang", "{}", "timeout"),
    ("python", "fail", "{}", "ValueError"),
    ("python", "much", "{}", "result_too_large"),
    ("python", "add", '{"a": 1', "bad_arguments"),
    ("python", "add", '["a"]', "bad_arguments"),
    ("python", "rm", "{}", "unknown_tool"),
    ("isolated", "hang_for_ever", "{}", "timeout"),
    ("isolated", "fail", "{}", "ValueError"),
    ("isolated", "much", "{}", "result_too_large"),
    ("isolated", "exit_at_once", "{}", "process_ended"),
    ("mcp-stdio", "wait", '{"seconds": 60}', "timeout"),
    ("mcp-stdio", "fail", "{}", "tool_error"),
    ("mcp-stdio", "much", "{}", "result_too_large"),
    ("mcp-stdio", "die", "{}", "server_gone"),
    ("mcp-stdio", "echo", "{}", "bad_arguments"),
    ("mcp-http", "wait", '{"seconds": 60}', "timeout"),
    ("mcp-http", "fail", "{}", "tool_error"),
    ("mcp-http", "much", "{}", "result_too_large"),
    ("openapi", "hang", "{}", "timeout"),
    ("openapi", "fail", "{}", "500"),
    ("openapi", "much", "{}", "result_too_large"),
    ("openapi", "die", "{}", "connection"),
]


@pytest.mark.parametrize("kind", ["python", "isolated", "mcp-stdio", "mcp-http", "openapi"])
async def test_each_fault_of_a_tool_is_told_to_the_model_once_and_leaves_nothing(
    kind: str, tmp_path: Path
):
    """Every fault of this kind of tool in turn, in one proxy: its kind reaches model and span,
    the request ends well with one record, and no task, process or socket is left of it.
    """
    at_first = held()
    async with bench(kind, tmp_path) as at:
        # an isolated function keeps a process for its next call
        warming = [asks_tools(("fail", "{}"))] if kind == "isolated" else []
        assert text_of(await at.ask(*warming, ANSWER)) == "up it is"
        before = held()
        cases = [fault for fault in FAULTS if fault[0] == kind]
        for number, (_, name, arguments, told) in enumerate(cases, 2):
            answer = await at.ask(asks_tools((name, arguments)), ANSWER)
            assert text_of(answer) == "up it is", (name, answer.text)
            said = json.loads(at.fake.requests[1].body)["messages"][-1]["content"]
            assert json.loads(said)["error"]["type"] == told, (name, said)
            root = await at.root(number)
            assert root[semconv.STATUS] == "ok"
            [span] = [s for s in at.proxy.sink.requests[-1] if s.name.startswith("execute_tool")]
            assert span.attributes[semconv.ERROR_TYPE] == told
            if name != "die":
                await nothing_more_than(before)
    await nothing_more_than(at_first)


async def test_a_dead_mcp_server_over_http_is_told_and_found_again(tmp_path: Path):
    """The call during which it dies and the one while it is away are told; then it works again."""
    async with bench("mcp-http", tmp_path) as at:
        answer = await at.ask(asks_tools(("die", "{}")), ANSWER)
        assert text_of(answer) == "up it is"
        said = json.loads(at.fake.requests[1].body)["messages"][-1]["content"]
        assert json.loads(said)["error"]["type"] == "server_gone"
        await at.ask(asks_tools(("echo", '{"text": "x"}')), ANSWER)
        said = json.loads(at.fake.requests[1].body)["messages"][-1]["content"]
        assert json.loads(said)["error"] == {
            "type": "server_gone", "message": "the tool's server cannot be reached"
        }  # fmt: skip
        assert (await at.root(2))[semconv.STATUS] == "ok"


async def test_a_dead_mcp_server_over_stdio_is_started_again_by_the_next_call(tmp_path: Path):
    """No more processes than before: the new one took the dead one's place."""
    async with bench("mcp-stdio", tmp_path) as at:
        await at.ask(asks_tools(("echo", '{"text": "here"}')), ANSWER)
        before = held()
        await at.ask(asks_tools(("die", "{}")), ANSWER)
        await at.ask(asks_tools(("echo", '{"text": "back"}')), ANSWER)
        said = json.loads(at.fake.requests[1].body)["messages"][-1]["content"]
        assert said == "back"
        await nothing_more_than(before)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_loops_for_ever_is_stopped(tmp_path: Path, stream: bool):
    """After the rounds of the settings: one error for the client, one record, nothing left."""
    async with bench("python", tmp_path) as at:
        await at.ask(ANSWER)
        before = held()
        made: Callable[..., Reply] = asks_tools if stream else whole_tools
        answer = await at.ask(*(made(("add", '{"a": 1, "b": 1}')) for _ in range(9)), stream=stream)
        assert len(at.fake.requests) == 4
        error = chunks(answer)[-1]["error"] if answer.status_code == 200 else answer.json()["error"]
        assert error["type"] == "rounds_limit"
        root = await at.root(2)
        assert root[semconv.ERROR_TYPE] == "rounds_limit"
        await nothing_more_than(before)


@pytest.mark.parametrize("kind", ["mcp-stdio", "mcp-http", "openapi"])
async def test_a_client_that_leaves_takes_the_running_tool_with_it(kind: str, tmp_path: Path):
    """The record is of a cancelled request; the tool's work is ended, not waited for."""
    name, arguments = ("hang", "{}") if kind == "openapi" else ("wait", '{"seconds": 60}')
    async with bench(kind, tmp_path) as at:
        await at.ask(ANSWER)
        before = held()
        at.model.left = [asks_tools((name, arguments), text="wait")]
        await leave_after("wait", at.client, at.proxy)
        root = await at.root(2)
        assert root[semconv.STATUS] == "cancelled"
        await nothing_more_than(before)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_takes_the_running_retrieval_with_it(stream: bool):
    """The search is hung up on, and the record is of a cancelled request."""
    async with (
        fake_llm(Reply([Hang()], head_first=False)) as search,
        fake_llm(ANSWER) as fake,
        live_proxy(fake.url, pipelines=bot(retrievers=[
            {"kind": "http", "name": "web", "url": search.url, "timeout_s": 60}])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):  # fmt: skip
        body = {"model": "bot", "messages": USER, "stream": stream}
        asking = asyncio.create_task(client.post(proxy.url + CHAT, json=body))
        await asyncio.wait_for(search.asked.wait(), 10)
        asking.cancel()
        await asyncio.wait_for(search.left.wait(), 10)
        [root] = await proxy.sink.wait_for(1)
    assert root[semconv.STATUS] == "cancelled"
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval web")
    assert span.attributes[semconv.ERROR_TYPE] == "cancelled"
    assert fake.requests == []


RETRIEVERS = [
    (Reply([Hang()], head_first=False), "timeout"),
    (Reply([b"{}"], status=503, content_type="application/json", framing="length"), "503"),
    (Reply([b"x" * 1_000_000] * 10, content_type="application/json"), "result_too_large"),
    (Reply([b"no json"], content_type="application/json", framing="length"), "bad_answer"),
    (Reply([b'{"documents": 7}'], content_type="application/json", framing="length"), "bad_answer"),
    (Reply([Reset()], head_first=False), "connection"),
]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
async def test_each_fault_of_a_retrieval_fails_the_request_or_is_skipped(on_error: str):
    """Six ways for a search to fail: the kind in the span, one record, nothing left."""
    replies = [reply for reply, _ in RETRIEVERS]
    model = Model()
    async with (
        fake_llm(Model([Reply([b'{"documents": []}'], content_type="application/json",
                              framing="length"), *replies])) as search,
        fake_llm(model) as fake,
        live_proxy(fake.url, pipelines=bot(retrievers=[
            {"kind": "http", "name": "web", "url": search.url, "on_error": on_error,
             "timeout_s": 0.5}])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):  # fmt: skip
        at = Bench(proxy, fake, model, client)
        await at.ask(ANSWER)
        before = held()
        for number, (_, kind) in enumerate(RETRIEVERS, 2):
            answer = await at.ask(ANSWER)
            assert answer.status_code == (502 if on_error == "fail" else 200)
            assert answer.headers.get("x-stagelens-skipped") == (
                "web" if on_error == "skip" else None
            )
            root = await at.root(number)
            assert root[semconv.STATUS] == ("error" if on_error == "fail" else "ok")
            span = next(s for s in proxy.sink.requests[-1] if s.name == "retrieval web")
            assert span.attributes[semconv.ERROR_TYPE] == kind
            await nothing_more_than(before)
