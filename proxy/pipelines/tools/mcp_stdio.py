"""MCP over standard input and output, with no message longer than allowed.

The MCP package's own transport keeps a message of any length, and looks through what it has
of it anew with every piece: 10 MB held up the event loop for seconds. Here the rest of a
message that is too long is thrown away as it comes, and the call that it answered fails.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

TOO_LARGE = -32_090
"""The code of the error that stands for an answer that was too long."""
GRACE_S = 2.0
"""What a server gets to end by itself, and again after SIGTERM."""
_SHOWN = 200
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*[,}]')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')

Incoming = SessionMessage | Exception


@asynccontextmanager
async def limited_stdio(
    command: Sequence[str], env: dict[str, str], most_bytes: int
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    """The streams of a server started by ``command``, which is ended afterwards.

    It sees ``env`` and what the MCP package takes for harmless of ours (PATH, HOME, …).

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True,
        env=get_default_environment() | env,
    )  # fmt: skip
    to_us, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, to_us, most_bytes)),
        asyncio.create_task(_write(process, from_us, to_us)),
    ]
    try:
        yield incoming, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process, tasks)
        for stream in (to_us, incoming, outgoing, from_us):
            stream.close()


async def _read(process: Process, to_us: MemoryObjectSendStream[Incoming], most: int) -> None:
    """Hand each message on; at the server's end the session sees the stream close."""
    assert process.stdout is not None
    line = _Line(most)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with to_us:
            while data := await process.stdout.read(65_536):
                *ends, rest = data.split(b"\n")
                for piece in ends:
                    line.add(piece)
                    if (message := line.message()) is not None:
                        await to_us.send(message)
                    line = _Line(most)
                line.add(rest)


async def _write(
    process: Process,
    from_us: MemoryObjectReceiveStream[SessionMessage],
    to_us: MemoryObjectSendStream[Incoming],
) -> None:
    assert process.stdin is not None
    try:
        async with from_us:
            async for sent in from_us:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        to_us.close()  # the server reads no more: the session ends


@dataclass(slots=True)
class _Line:
    """One line as it comes; of a long one only its two ends are kept."""

    most: int
    size: int = 0
    kept: bytearray = field(default_factory=bytearray)
    tail: bytes = b""

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= self.most:
            self.kept += piece
            return
        if not self.tail:
            self.tail = bytes(self.kept[-_SHOWN:])
            self.kept += piece[:_SHOWN]
            del self.kept[_SHOWN:]
        self.tail = (self.tail + piece[-_SHOWN:])[-_SHOWN:]

    def message(self) -> Incoming | None:
        """What the line says; an error for the call that it answers where it is too long."""
        if self.size > self.most:
            return self._refused()
        if not self.kept.strip():
            return None
        try:
            said = mcp_types.jsonrpc_message_adapter.validate_json(bytes(self.kept), by_name=False)
            return SessionMessage(said)
        except ValueError as problem:
            return problem

    def _refused(self) -> Incoming:
        text = f"the message is longer than {self.most} bytes"
        found = _ID_FIRST.match(bytes(self.kept)) or _ID_LAST.search(self.tail)
        if found is None:
            return ValueError(text)
        error = mcp_types.ErrorData(code=TOO_LARGE, message=text)
        return SessionMessage(
            mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
        )


async def _stop(process: Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Close its input, wait, then end it and all that it started."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if process.stdin is not None:
        process.stdin.close()
    drained = asyncio.create_task(_drain(process))
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
            break
    drained.cancel()
    await asyncio.gather(drained, return_exceptions=True)


async def _drain(process: Process) -> None:
    """A server that still writes must not be stuck on a full pipe."""
    assert process.stdout is not None
    while await process.stdout.read(65_536):
        pass
