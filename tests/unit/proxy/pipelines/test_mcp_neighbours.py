"""Calls of several requests share an MCP session: what is wrong with one harms no other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.tools.kit import ReadyTool, ToolCall, run_call
from tests.support.held import held, nothing_more_than
from tests.support.mcp_tools import tools_of
from tests.support.old_mcp import OldMcp, old_mcp

TRACE = Trace(0xABC, 0xDEF, 1)
STDIO = (sys.executable, "-m", "tests.support.mcp_server")


class Plain:
    """Runs calls without spans."""

    async def tool(
        self, _name: str, _kind: str, _id: str, limit_s: float,
        work: Callable[[Trace], Awaitable[str]],
    ) -> str:  # fmt: skip
        async with asyncio.timeout(limit_s):
            return await work(TRACE)


async def called(tools: dict[str, ReadyTool], name: str, arguments: str) -> str:
    """The result of a call that a model wrote, or the kind of its fault."""
    try:
        return await run_call(ToolCall("c", name, arguments), tools, Plain())  # type: ignore[arg-type]
    except StageProblem as problem:
        return problem.kind


REFUSES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "n", "version": "1"}}
    elif asked["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    else:
        answer["error"] = {"code": -32000, "message": "no stock"}
    print(json.dumps(answer), flush=True)
"""


@asynccontextmanager
async def beside(server: OldMcp, tools: dict[str, ReadyTool]) -> AsyncIterator[None]:
    """A call of another request runs meanwhile, and ends well in the session that it began in."""
    server.held = "tools/call"
    other = asyncio.create_task(called(tools, "echo", "{}"))
    await asyncio.wait_for(server.waiting.wait(), 10)
    server.held = ""
    yield
    server.gate.set()
    assert (await asyncio.wait_for(other, 10)).startswith("hei")


def deep(levels: int) -> str:
    return '{"z":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("levels", [300, 900])
async def test_arguments_too_deep_for_a_message_fail_their_own_call_alone(levels: int):
    """The client met them with the message in its hands, and the session of all ended."""
    async with old_mcp() as server, tools_of(url=server.url, tools=("echo",)) as tools:
        async with beside(server, tools):
            assert await called(tools, "echo", deep(levels)) == "bad_arguments"
        assert server.asked["initialize"] == 1


@pytest.mark.parametrize("text", ['{"t": "a\\ud800"}', '{"\\udfff": 1}', '{"t": "\ud800"}'])
async def test_half_a_character_in_arguments_is_a_question_mark_and_ends_no_session(text: str):
    """No message can hold it, as a value or a name."""
    async with old_mcp() as server, tools_of(url=server.url, tools=("echo",)) as tools:
        async with beside(server, tools):
            assert (await called(tools, "echo", text)).startswith("hei")
        assert server.asked["initialize"] == 1


async def test_a_program_gets_sound_arguments_too():
    """What cannot be written down has the kind of bad arguments, and not that of an exception."""
    async with tools_of(command=STDIO, tools=("echo",)) as tools:
        assert await called(tools, "echo", '{"text": "a\\ud800"}') == "a?"
        for levels in (300, 900):
            assert await called(tools, "echo", deep(levels)[:-1] + ',"text":""}') == "bad_arguments"


@pytest.mark.parametrize("refusal", [(404, ""), (400, "Session not found")])
async def test_a_call_whose_session_is_refused_takes_no_other_with_it(refusal: tuple[int, str]):
    """One that the server has begun to answer goes on in the old session, which ends with it."""
    before = held()
    async with old_mcp() as server, tools_of(url=server.url, tools=("echo", "facts")) as tools:
        server.refusal, server.refused = refusal, "facts"
        async with beside(server, tools):
            assert await called(tools, "facts", "{}") == "server_gone"
        assert server.asked["tools/call"] == 3
        assert (await called(tools, "echo", "{}")).startswith("hei")
    await nothing_more_than(before)


async def test_an_error_of_a_live_server_is_the_tools_whatever_its_code():
    """Its -32000 is also what the client says of a connection that closed."""
    command = (sys.executable, "-c", REFUSES)
    async with tools_of(command=command, tools=("echo",)) as tools:
        for _ in range(2):
            with pytest.raises(StageProblem, match="no stock") as refused:
                await tools["echo"].call({}, TRACE)
            assert refused.value.kind == "tool_error"
