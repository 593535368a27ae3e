"""What an MCP server says without being asked, and how little that holds up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import mcp_types
import pytest
from mcp.shared.message import SessionMessage

from proxy.pipelines.tools.mcp_sift import IN_A_ROW, MOST_UNANSWERED, Said, sifted

NOTE = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
ANSWER = {"id": 5, "result": {"content": []}}


class Scripted:
    """Both ends of a transport: says ``messages``, then nothing more."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        self.messages = [
            SessionMessage(
                mcp_types.jsonrpc_message_adapter.validate_json(json.dumps({"jsonrpc": "2.0", **one}))
            )
            for one in messages
        ]
        self.closed = 0

    async def __anext__(self) -> SessionMessage:
        if not self.messages:
            raise StopAsyncIteration
        return self.messages.pop(0)

    async def send(self, item: SessionMessage, /) -> None:
        return

    async def aclose(self) -> None:
        self.closed += 1


Heard = tuple[Callable[[], Awaitable[SessionMessage]], Callable[[SessionMessage], Awaitable[None]]]


@asynccontextmanager
async def heard(messages: list[dict[str, object]], said: Said) -> AsyncIterator[Heard]:
    ends = Scripted(messages)

    @asynccontextmanager
    async def transport() -> AsyncIterator[tuple[Scripted, Scripted]]:
        yield ends, ends

    async with sifted(transport(), said) as (reading, writing), reading, writing:  # type: ignore[arg-type]
        yield reading.__anext__, writing.send  # type: ignore[misc]
    assert ends.closed == 2


async def test_notifications_reach_nobody_and_leave_the_loop_to_others():
    """Each made the client a task: 50,000 of them held the loop for 200 ms and more at once."""
    async with heard([*[NOTE] * IN_A_ROW * 10, ANSWER], Said()) as (read, _):
        hearing = asyncio.create_task(read())
        turns = 0
        while not hearing.done():
            await asyncio.sleep(0)
            turns += 1
        assert isinstance(hearing.result().message, mcp_types.JSONRPCResponse)
    assert turns >= 10


async def test_requests_of_the_server_wait_in_no_greater_number_than_allowed():
    """A server that asks and never reads what we say made a task for each, for ever."""
    said = Said()
    ping = {"id": 1, "method": "ping"}
    async with heard([*[ping] * (MOST_UNANSWERED + 9), ANSWER, ping, ping], said) as (read, send):
        got = [await read() for _ in range(MOST_UNANSWERED + 1)]
        assert sum(isinstance(one.message, mcp_types.JSONRPCRequest) for one in got) == MOST_UNANSWERED
        pong = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})
        await send(SessionMessage(pong))
        assert isinstance((await read()).message, mcp_types.JSONRPCRequest)
        with pytest.raises(StopAsyncIteration):
            await read()
    assert said.unanswered == MOST_UNANSWERED


async def test_what_a_tool_says_under_the_name_of_tools_stays_as_it_is():
    """Only a list of tools is looked through."""
    result = {"content": [], "tools": ["hammer"]}
    async with heard([{"id": 1, "result": result}], Said()) as (read, _):
        message = (await read()).message
    assert isinstance(message, mcp_types.JSONRPCResponse)
    assert message.result == result
