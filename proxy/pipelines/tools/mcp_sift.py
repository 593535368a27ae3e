"""What goes from an MCP server to the official client: answers, and its requests within bounds.

The client makes a task of each message that is no answer, as fast as they come, and reads a list
of tools as a whole: a server that talks much held up the event loop for seconds, and one odd tool
made all others unusable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import mcp_types
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

MOST_UNANSWERED = 32
"""Requests of the server's that wait for our answer; more are left unheard."""
IN_A_ROW = 64
"""Messages that are passed over before other tasks have their turn."""
_ANSWERS = (mcp_types.JSONRPCResponse, mcp_types.JSONRPCError)
_USED = ("name", "description", "inputSchema")

Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]


class Reads(Protocol):
    """What is needed of a transport's one end; its next message is StopAsyncIteration at the end."""

    def __anext__(self) -> Awaitable[SessionMessage | Exception]: ...
    async def aclose(self) -> None: ...


class Writes(Protocol):
    """What is needed of its other end."""

    async def send(self, item: SessionMessage, /) -> None: ...
    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Said:
    """What a server said that no call gets: ``odd_tools`` by name with what is wrong with them,
    ``strays`` how many lines or events were no messages of the protocol, ``unanswered`` how many
    of its requests wait for our answer.
    """

    odd_tools: dict[str, str] = field(default_factory=dict)
    strays: int = 0
    unanswered: int = 0


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[tuple[Reads, Writes]], said: Said
) -> AsyncIterator[Streams]:
    """``transport`` with little for the client to do that no call waits for.

    Notifications end here: nothing in a pipeline asks for any.
    """
    async with transport as (reading, writing):
        yield _Reading(reading, said), _Writing(writing, said)


class _Reading:
    def __init__(self, inner: Reads, said: Said) -> None:
        self._inner = inner
        self._said = said

    @property
    def last_context(self) -> Context | None:
        """The context of who sent the last message, where the transport knows it."""
        return getattr(self._inner, "last_context", None)

    async def __anext__(self) -> SessionMessage | Exception:
        passed = 0
        while True:
            item = await self._inner.__anext__()
            if isinstance(item, Exception):
                self._said.strays += 1
            elif isinstance(item.message, _ANSWERS):
                if isinstance(item.message, mcp_types.JSONRPCResponse):
                    _keep_sound_tools(item.message.result, self._said.odd_tools)
                return item
            elif isinstance(item.message, mcp_types.JSONRPCRequest) and self._room():
                self._said.unanswered += 1
                await asyncio.sleep(0)
                return item
            passed += 1
            if passed % IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _room(self) -> bool:
        return self._said.unanswered < MOST_UNANSWERED

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()


class _Writing:
    def __init__(self, inner: Writes, said: Said) -> None:
        self._inner = inner
        self._said = said

    async def send(self, item: SessionMessage, /) -> None:
        try:
            await self._inner.send(item)
        finally:
            if isinstance(item.message, _ANSWERS):
                self._said.unanswered -= 1

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()


def _keep_sound_tools(result: dict[str, Any], odd: dict[str, str]) -> None:
    """Leave of a list of tools, in its place, those that the client can read, and of each what
    pipelines use; the others go to ``odd``.
    """
    tools = result.get("tools")
    if not isinstance(tools, list) or "content" in result:
        return
    kept = []
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        told = {key: tool[key] for key in _USED if key in tool}
        if not isinstance(told.get("description", ""), str):
            del told["description"]
        if (why := _oddity(told)) is None:
            kept.append(told)
        elif isinstance(told.get("name"), str):
            odd[told["name"]] = why
    result["tools"] = kept


def _oddity(tool: dict[str, Any]) -> str | None:
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"[:200]
    return None
