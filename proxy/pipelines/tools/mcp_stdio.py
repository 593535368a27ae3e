"""MCP over standard input and output, with no message longer than allowed.

The MCP package's own transport keeps a message of any length, and looks through what it has
of it anew with every piece: 10 MB held up the event loop for seconds. Here the rest of a
message that is too long is thrown away as it comes, and the call that it answered fails.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import anyio
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from proxy.pipelines.processes import end_left, signal_all, start

TOO_LARGE = -32_090
"""The code of the error that stands for an answer that was too long."""
GRACE_S = 2.0
"""What a server gets to end by itself, and again after SIGTERM."""
_SHOWN = 200
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*[,}]')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')

PIECE = 16_384
"""Bytes read at once: what they say is heard out before the loop goes on."""
MOST_NOISE = 1 << 20
"""Bytes of lines that are no messages, one after the other; a server that says more is ended."""


@asynccontextmanager
async def limited_stdio(
    command: Sequence[str],
    env: dict[str, str],
    most_bytes: int,
    on_end: Callable[[], None],
    last_words: deque[str],
) -> AsyncIterator[tuple[_Reading, _Writing]]:
    """The streams of a server started by ``command``, which is ended afterwards.

    It sees ``env`` and what the MCP package takes for harmless of ours (PATH, HOME, …).
    ``on_end`` is called when the server goes by itself, in a call or between calls;
    ``last_words`` gets the lines of its standard error, of which the deque keeps what it will.

    Raises:
        OSError: it cannot be started.
    """
    process = await start(*command, env=get_default_environment() | env)
    hearing = asyncio.create_task(_hear(process, last_words))
    try:
        yield _Reading(process, most_bytes, on_end), _Writing(process, on_end)
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
            # what it started may have its standard error still
            await asyncio.wait({hearing}, timeout=GRACE_S if process.returncode else 0)
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)


async def _hear(process: Process, last_words: deque[str]) -> None:
    """Read on, so that a server that writes much is never stuck on a full pipe."""
    assert process.stderr is not None
    begun = b""
    while data := await process.stderr.read(65_536):
        *lines, begun = (begun + data).split(b"\n")
        last_words.extend(line[:_SHOWN].decode("utf-8", "replace").strip() for line in lines[-5:])
        begun = begun[:_SHOWN]


class _Reading:
    """What the server says, read in the session's own task: no task and no queue between them."""

    def __init__(self, process: Process, most: int, on_end: Callable[[], None]) -> None:
        assert process.stdout is not None
        self._stdout = process.stdout
        self._most = most
        self._on_end = on_end
        self._line = _Line(most)
        self._said: deque[SessionMessage] = deque()
        self._noise = 0

    async def __anext__(self) -> SessionMessage:
        while not self._said:
            await asyncio.sleep(0)  # one that talks without end must leave the loop to others
            data = await self._stdout.read(PIECE)
            if not data or self._noise > MOST_NOISE:
                self._on_end()
                raise StopAsyncIteration
            *ends, rest = data.split(b"\n")
            for piece in ends:
                self._line.add(piece)
                self._hear(self._line)
                self._line = _Line(self._most)
            self._line.add(rest)
        return self._said.popleft()

    def _hear(self, line: _Line) -> None:
        if (message := line.message()) is None:
            self._noise += line.kept_bytes
            return
        self._noise = 0
        self._said.append(message)

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


class _Writing:
    """Writes to the server from the caller's own task."""

    def __init__(self, process: Process, on_end: Callable[[], None]) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin
        self._on_end = on_end

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._stdin.write(text.encode("utf-8", "replace") + b"\n")
            await self._stdin.drain()
        except OSError:
            self._on_end()  # the server reads no more
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


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

    @property
    def kept_bytes(self) -> int:
        return len(self.kept) + 1

    def message(self) -> SessionMessage | None:
        """What the line says; an error for the call that it answers where it is too long. None
        where it is no message: many programs greet on standard output.
        """
        if self.size > self.most:
            return self._refused()
        data = bytes(self.kept).lstrip(b"\xef\xbb\xbf \t\r")
        if not data.startswith(b"{"):  # looked at first: a refusal takes ten times as long
            return None
        try:
            return _message(data)
        except ValueError:
            pass
        try:
            return _message(_sound(data))
        except (ValueError, RecursionError):
            is_answer = b'"method"' not in data[:_SHOWN]
            self.tail = data[-_SHOWN:]
            return self._refused(mcp_types.INVALID_REQUEST) if is_answer else None

    def _refused(self, code: int = TOO_LARGE) -> SessionMessage | None:
        """An error for the call that the line answers, where it says which one."""
        text = "the message cannot be read"
        if code == TOO_LARGE:
            text = f"the message is longer than {self.most} bytes"
        found = _ID_FIRST.match(bytes(self.kept)) or _ID_LAST.search(self.tail)
        if found is None:
            return None
        error = mcp_types.ErrorData(code=code, message=text)
        return SessionMessage(
            mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
        )


def _message(data: bytes) -> SessionMessage:
    return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False))


def _sound(data: bytes) -> bytes:
    """JSON whose texts are UTF-8: another encoding's characters and half ones become ``?``."""
    told = json.loads(data.decode("utf-8", "replace"))
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


async def _stop(process: Process) -> None:
    """Close its input, wait, then end it and all that it started."""
    if process.stdin is not None:
        process.stdin.close()
    drained = asyncio.create_task(_drain(process))
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            signal_all(process, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
            break
    await end_left(process)
    drained.cancel()
    await asyncio.gather(drained, return_exceptions=True)


async def _drain(process: Process) -> None:
    """A server that still writes must not be stuck on a full pipe."""
    assert process.stdout is not None
    while await process.stdout.read(65_536):
        pass
