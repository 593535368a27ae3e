"""Tools that do not end when they are told to: the request ends, and what they started with it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy.errors import ProxyError
from proxy.pipelines.callables import MOST_THREADS, Callables
from proxy.pipelines.isolated import Isolated
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.settings import McpTools
from proxy.pipelines.text import hidden
from proxy.pipelines.tools.mcp import McpSource
from tests.fake_llm.dialects import asks_tools
from tests.fake_llm.server import fake_llm
from tests.support import pipeline_functions
from tests.support.held import ended
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import ANSWER, HERE, ask, bot, leave_after, text_of, tool
from tracer import semconv

MCP = [sys.executable, "-m", "tests.support.mcp_server"]


@pytest.fixture
def _let_go() -> Iterator[None]:
    """No coroutine outlives its test."""
    pipeline_functions.LET_GO.clear()
    yield
    pipeline_functions.LET_GO.set()


def told(body: bytes) -> str:
    said = json.loads(body)["messages"][-1]["content"]
    return str(json.loads(said)["error"]["type"])


@pytest.mark.usefixtures("_let_go")
@pytest.mark.parametrize("name", ["stay", "swallow"])
async def test_a_coroutine_that_catches_its_cancel_is_late_all_the_same(name: str):
    """The request goes on at the time-out; a result that comes with the cancel is none."""
    answer, [root], proxy, fake = await ask(
        [asks_tools((name, "{}")), ANSWER], bot(tools=[tool(name, timeout_s=0.1)]), stream=True
    )
    pipeline_functions.LET_GO.set()
    assert text_of(answer) == "up it is"
    assert told(fake.requests[1].body) == "timeout"
    assert root[semconv.STATUS] == "ok"
    [span] = [s for s in proxy.sink.requests[0] if s.name == f"execute_tool {name}"]
    assert span.attributes[semconv.ERROR_TYPE] == "timeout"


@pytest.mark.usefixtures("_let_go")
async def test_a_client_that_leaves_gets_its_record_from_a_stubborn_coroutine_too():
    """One record, of a cancelled request."""
    async with (
        fake_llm(asks_tools(("stay", "{}"), text="wait")) as fake,
        live_proxy(fake.url, pipelines=bot(tools=[tool("stay")])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        await leave_after("wait", client, proxy)
        [root] = await proxy.sink.wait_for(1)
        pipeline_functions.LET_GO.set()
    assert root[semconv.STATUS] == "cancelled"


@pytest.mark.usefixtures("_let_go")
async def test_coroutines_that_cannot_be_ended_are_bounded():
    """Beyond the limit a call fails at once, until they end."""
    callables = Callables()
    calls = [
        asyncio.create_task(callables.call(pipeline_functions.stay)) for _ in range(MOST_THREADS)
    ]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(StageProblem) as busy:
        await callables.call(pipeline_functions.add, 1, 2)
    assert busy.value.kind == "busy"
    pipeline_functions.LET_GO.set()
    while callables._left:  # noqa: ASYNC110  it has no other sign
        await asyncio.sleep(0.01)
    assert await callables.call(pipeline_functions.add, 1, 2) == 3


def _noted(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


async def _pid_in(file: Path) -> int:
    ends = asyncio.get_running_loop().time() + 20
    while not (pid := _noted(file)):
        assert asyncio.get_running_loop().time() < ends, "no process was started"
        await asyncio.sleep(0.01)
    return pid


async def test_what_an_isolated_function_started_ends_with_it(tmp_path: Path):
    """A call that is late takes its children with it."""
    one = Isolated(HERE + "start_child", 10_000)
    call = asyncio.create_task(one.call(file=str(tmp_path / "pid")))
    child = await _pid_in(tmp_path / "pid")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await ended(child)


async def test_an_mcp_server_whose_child_keeps_its_output_open_is_gone_at_once(tmp_path: Path):
    """No end of its output tells of it; the child ends before another server begins."""
    file = tmp_path / "pid"
    arguments = json.dumps({"file": str(file), "end": True})
    tools = {"kind": "mcp", "command": MCP, "tools": ["leave_child", "echo"], "timeout_s": 15}
    replies = [asks_tools(("leave_child", arguments)), asks_tools(("echo", '{"text": "x"}')), ANSWER]
    answer, _, _, fake = await ask(replies, bot(tools=[tools]), stream=True)
    assert text_of(answer) == "up it is"
    assert told(fake.requests[1].body) == "server_gone"
    assert json.loads(fake.requests[2].body)["messages"][-1]["content"] == "x"
    await ended(int(file.read_text()))


async def test_what_an_mcp_server_left_behind_ends_with_the_session(tmp_path: Path):
    """The server itself ends in order, at the end of its input."""
    file = tmp_path / "pid"
    arguments = json.dumps({"file": str(file), "end": False})
    tools = {"kind": "mcp", "command": MCP, "tools": ["leave_child"]}
    await ask([asks_tools(("leave_child", arguments)), ANSWER], bot(tools=[tools]), stream=True)
    await ended(int(file.read_text()))


async def test_a_server_that_quotes_its_secret_is_quoted_without_it(monkeypatch: pytest.MonkeyPatch):
    """In the error of a start that failed."""
    monkeypatch.setenv("MY_KEY", "CANARY-123")
    program = "import os, sys; sys.exit('no entry with ' + os.environ['KEY'])"
    settings = McpTools(
        command=(sys.executable, "-c", program), env={"KEY": "MY_KEY"}, tools=("x",)
    )
    source = McpSource(settings)
    with pytest.raises(ProxyError, match=r"no entry with \*\*\*") as failed:
        await source.start()
    await source.close()
    assert "CANARY" not in str(failed.value)


def test_a_secret_is_hidden_with_its_scheme_and_without():
    """A server may quote the token alone; short words are words."""
    assert hidden("token abcdef12 of the Bearer kind", ["Bearer abcdef12", "the"]) == (
        "token *** of the *** kind"
    )
