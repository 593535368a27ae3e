"""Sessions with MCP servers: begun, shared, lost and begun again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import McpTools
from proxy.pipelines.tools.kit import ReadyTool
from proxy.pipelines.tools.mcp import McpSource
from tests.fake_llm.server import Asked, Reply, fake_llm
from tests.support.held import held, nothing_more_than
from tests.support.mcp_tools import tools_of
from tests.support.old_mcp import OldMcp, old_mcp

TRACE = Trace(0xABC, 0xDEF, 1)
STDIO = (sys.executable, "-m", "tests.support.mcp_server")


@asynccontextmanager
async def old(**settings: object) -> AsyncIterator[tuple[OldMcp, dict[str, ReadyTool]]]:
    names = {"tools": ("echo", "facts", "odd")}
    async with old_mcp() as server, tools_of(url=server.url, **{**names, **settings}) as tools:
        yield server, tools


@pytest.mark.parametrize("refusal", [(404, ""), (400, "Bad Request: No valid session ID provided")])
async def test_a_server_that_forgot_its_sessions_is_asked_for_one_within_the_call(
    refusal: tuple[int, str],
):
    """As one does that was started anew: the call that it refused unseen runs in a new session."""
    async with old() as (server, tools):
        await tools["echo"].call({}, TRACE)
        server.sessions.clear()
        server.refusal = refusal
        assert (await tools["echo"].call({}, TRACE)).startswith("hei")
        assert server.asked["initialize"] == 2
        assert server.asked["tools/call"] == 3


async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more():
    """The second refusal is told."""
    async with old() as (server, tools):
        server.sessions = type("Forgetful", (set,), {"add": lambda *_: None})()
        with pytest.raises(StageProblem) as gone:
            await tools["echo"].call({}, TRACE)
        assert gone.value.kind == "server_gone"
        assert server.asked["tools/call"] == 2


@pytest.mark.parametrize(
    "text", ["no stock", '{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"unknown session"}}']
)
async def test_a_refusal_that_is_not_of_the_session_is_told_and_the_call_not_tried_again(text: str):
    """It may have run."""
    async with old() as (server, tools):
        server.sessions.clear()
        server.refusal = (400, text)
        with pytest.raises(StageProblem):
            await tools["echo"].call({}, TRACE)
        assert (server.asked["tools/call"], server.asked["initialize"]) == (1, 1)


async def test_what_a_result_holds_besides_text_is_told_by_its_kind():
    """Texts of resources too; what has only structured content is its JSON."""
    async with old() as (_, tools):
        assert await tools["echo"].call({}, TRACE) == "hei\n[image]\ninside\n[resource file:///b]"
        assert await tools["facts"].call({}, TRACE) == '{"stock": 3}'


async def test_an_answer_that_is_not_of_the_protocol_is_told_and_harms_no_other_call():
    """Its kind is ``bad_answer``; the session goes on."""
    async with old() as (server, tools):
        with pytest.raises(StageProblem) as odd:
            await tools["odd"].call({}, TRACE)
        assert odd.value.kind == "bad_answer"
        await tools["echo"].call({}, TRACE)
        assert server.asked["initialize"] == 1


async def test_a_caller_that_leaves_while_a_session_begins_does_not_end_it_for_others():
    """One session is begun for both, and the one who stays gets its answer."""
    async with old() as (server, tools):
        server.sessions.clear()
        server.held = "initialize"
        leaves = asyncio.create_task(tools["echo"].call({}, TRACE))
        await asyncio.wait_for(server.waiting.wait(), 10)
        stays = asyncio.create_task(tools["echo"].call({}, TRACE))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.wait({leaves})
        server.gate.set()
        assert (await asyncio.wait_for(stays, 10)).startswith("hei")
        assert server.asked["initialize"] == 2


async def test_a_server_that_never_lists_its_tools_is_said_at_the_start():
    """Within the limit of connecting; what was begun is ended."""
    before = held()
    async with old_mcp() as server:
        server.held = "tools/list"
        with pytest.raises(ProxyError, match="no list of tools within"):
            async with tools_of(url=server.url, tools=("echo",), connect_timeout_s=0.5):
                pass
        server.gate.set()
    await nothing_more_than(before)


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "rm"},
        {"name": "rm", "inputSchema": {}},
        {"name": "rm", "inputSchema": {"type": "object", "required": "a"}},
        {"name": 5, "inputSchema": {"type": "object"}},
        "rm",
    ],
)
async def test_one_odd_tool_of_a_server_leaves_its_others_usable(odd: object):
    """The official client refuses the whole list."""
    async with old_mcp() as server:
        server.tools.insert(0, odd)
        async with tools_of(url=server.url, tools=("echo",)) as tools:
            assert (await tools["echo"].call({}, TRACE)).startswith("hei")


async def test_an_odd_tool_that_the_settings_name_is_said_with_what_is_wrong():
    """It would fail each call."""
    async with old_mcp() as server:
        server.tools.append({"name": "rm", "inputSchema": {}})
        with pytest.raises(ProxyError, match=r"tool rm .*inputSchema\.type: Field required.*mend"):
            async with tools_of(url=server.url, tools=("echo", "rm")):
                pass


@pytest.mark.parametrize(
    "more",
    [{"title": 3}, {"icons": [{}]}, {"annotations": {"readOnlyHint": "perhaps"}}, {"description": 7},
     {"outputSchema": {"type": "array"}}],
)  # fmt: skip
async def test_what_no_pipeline_uses_of_a_tool_need_not_be_of_the_protocol(more: dict[str, object]):
    """Titles, icons and hints are for people; the schema of results is not applied."""
    async with old_mcp() as server:
        server.tools[0] = server.tools[0] | more
        async with tools_of(url=server.url, tools=("echo",)) as tools:
            assert (await tools["echo"].call({}, TRACE)).startswith("hei")


async def test_a_program_that_ended_between_two_calls_is_started_by_the_next():
    """No call has to fail for that."""
    source = McpSource(McpTools(command=STDIO, tools=("pid",)))
    [pid] = await source.start()
    first = int(await pid.call({}, TRACE))
    assert source._session is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(10):
        while source._session.usable:  # noqa: ASYNC110  a session has no other sign
            await asyncio.sleep(0.01)
    assert int(await pid.call({}, TRACE)) != first
    await source.close()


SAYS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    results = {
        "initialize": {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "n", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hei"}]},
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in results:
        answer["result"] = results[asked["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    if asked["method"] == "tools/call":
        print(SAID, flush=True)
    else:
        print(json.dumps(answer), flush=True)
"""


def saying(said: str) -> dict[str, object]:
    """Settings of a server of protocol 2025-03-26 that answers each call with ``said``."""
    return {"command": (sys.executable, "-c", SAYS.replace("SAID", said)), "tools": ("echo",)}


@pytest.mark.parametrize("said", ["json.dumps([answer])", "json.dumps(answer, indent=2)"])
async def test_a_program_may_answer_in_batches_and_over_several_lines(said: str):
    """Protocol 2025-03-26 has batches; some servers print their JSON for people."""
    async with tools_of(**saying(said)) as tools:
        assert await asyncio.wait_for(tools["echo"].call({}, TRACE), 10) == "hei"


async def test_a_call_that_times_out_tells_that_its_server_said_what_nobody_could_read():
    """But not what it said, which may be anything."""
    async with tools_of(**saying('"CANARY\\nmore"')) as tools:
        trace = Trace(1, 2, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tools["echo"].call({}, trace), 1)
    assert trace.hints == [
        "meanwhile its output had 2 lines or events that are no messages of the protocol"
    ]


DEAF = SAYS + """
    if asked["method"] == "tools/list":
        import time
        time.sleep(600)
"""


async def test_a_call_to_a_program_that_reads_nothing_ends_at_its_limit():
    """What tells such a server that the call was given up was waited for too, for 5 s more. What
    it does not read is not written again and again.
    """
    command = (sys.executable, "-c", DEAF.replace("SAID", "1"))
    async with tools_of(command=command, tools=("echo",)) as tools:
        for _ in range(3):
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tools["echo"].call({"a": "x" * 500_000}, TRACE), 0.2)
            assert asyncio.get_running_loop().time() - began < 3


async def test_a_server_that_is_slow_to_hear_that_a_call_was_given_up_holds_up_no_other():
    """The official client sends one message after the other."""
    async with old() as (server, tools):
        server.held = "tools/call notifications/cancelled"
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tools["echo"].call({}, TRACE), 0.2)
        async with asyncio.timeout(10):
            while server.asked["notifications/cancelled"] < 2:  # noqa: ASYNC110  no other sign
                await asyncio.sleep(0.01)
        server.held = "notifications/cancelled"
        assert (await asyncio.wait_for(tools["echo"].call({}, TRACE), 10)).startswith("hei")


ODD = [
    (Reply([b"<html>CANARY"], content_type="text/html", framing="length"), "bad_answer"),
    (Reply([b'{"CANARY'], content_type="application/json", framing="length"), "bad_answer"),
    (Reply([b"data: CANARY\n\n"]), "bad_answer"),
    (Reply([b'[{"jsonrpc":"2.0","id":3,"result":{"content":[]}}]'],
           content_type="application/json", framing="length"), "bad_answer"),
    (Reply([b"CANARY"], status=401, framing="length"), "401"),
    (Reply([b"CANARY"], status=500, framing="length"), "500"),
    (Reply([b""], status=307, framing="length", headers=[("Location", "http://h/?CANARY")]),
     "redirect_refused"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "kind"), ODD)
async def test_what_a_server_says_beside_the_protocol_has_its_kind_and_stands_in_no_log(
    reply: Reply, kind: str, caplog: pytest.LogCaptureFixture
):
    """The official client's own log quotes what it cannot read."""
    async with fake_llm(lambda asked: as_asked(asked, reply)) as server:
        source = McpSource(McpTools(url=server.url + "/mcp", tools=("echo",)))
        try:
            [tool] = await source.start()
            with pytest.raises(StageProblem) as told:
                await tool.call({}, TRACE)
        finally:
            await source.close()
    assert told.value.kind == kind
    assert "CANARY" not in caplog.text
    assert "CANARY" not in told.value.text


def as_asked(asked: Asked, reply: Reply) -> Reply:
    """``reply`` to a call, and what the protocol wants to all else."""
    body = json.loads(asked.body or b"{}")
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "odd", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    }  # fmt: skip
    method = body.get("method")
    if method == "tools/call":
        return reply
    if "id" not in body:
        return Reply(status=202, framing="length")
    answer = {"jsonrpc": "2.0", "id": body["id"]}
    if method in results:
        answer["result"] = results[method]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    said = json.dumps(answer).encode()
    return Reply([said], content_type="application/json", framing="length")
