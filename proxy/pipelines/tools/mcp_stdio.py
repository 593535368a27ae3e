"""MCP over standard input and output, with no message longer than allowed.

The MCP package's own transport keeps a message of any length, and looks through what it has
of it anew with every piece: 10 MB held up the event loop for seconds. Here the rest of a
message that is too long is thrown away as it comes, and the call that it answered fails. Batches
and messages over several lines are read, which that transport does not know.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from proxy.pipelines.processes import end_left, signal_all, start
from proxy.pipelines.tools.mcp_sift import Said

TOO_LARGE = -32_090
"""The code of the error that stands for an answer that was too long."""
GRACE_S = 2.0
"""What a server gets to end by itself, and again after SIGTERM."""
_SHOWN = 200
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*[,}]')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_AROUND = b"\xef\xbb\xbf \t\r\n,"
"""Around a message: a byte order mark, spaces, and the comma behind one of a batch over lines."""
_NAMED = b'"jsonrpc"'
_BEGINS = re.compile(rb'\{\s*(?:"|$)|\[\s*(?:\{|$)')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|$)')
MOST_IN_BATCH = 1000
MOST_UNREAD = 1 << 18
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
    said: Said,
) -> AsyncIterator[tuple[AsyncGenerator[SessionMessage, None], _Writing]]:
    """The ends of a server started by ``command``, which is ended afterwards.

    It sees ``env`` and what the MCP package takes for harmless of ours (PATH, HOME, …).
    ``on_end`` is called when the server goes by itself, in a call or between calls;
    ``last_words`` gets the lines of its standard error, of which the deque keeps what it will,
    ``said`` counts the lines of its standard output that are no messages.

    Raises:
        OSError: it cannot be started.
    """
    process = await start(*command, env=get_default_environment() | env)
    hearing = asyncio.create_task(_hear(process, last_words))
    try:
        yield _heard(process, most_bytes, on_end, said), _Writing(process, on_end)
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await _stop(process)
                # what it started may have its standard error still
                await asyncio.wait({hearing}, timeout=GRACE_S if process.returncode else 0)
            finally:
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


async def _heard(
    process: Process, most: int, on_end: Callable[[], None], said: Said
) -> AsyncGenerator[SessionMessage, None]:
    """What the server says, read in the session's own task: no task and no queue between them."""
    assert process.stdout is not None
    line, noise = _Line(most), 0
    while noise <= MOST_NOISE:
        await asyncio.sleep(0)  # one that talks without end must leave the loop to others
        if not (data := await process.stdout.read(PIECE)):
            break
        *ends, rest = data.split(b"\n")
        for piece in ends:
            line.add(piece)
            if (messages := line.end()) is None:
                continue
            noise = 0 if messages else noise + len(line.kept) + 1
            said.strays += not messages and line.size > 1
            line = _Line(most)
            for message in messages:
                yield message
        line.add(rest)
    on_end()


class _Writing:
    """Writes to the server from the caller's own task. Requests wait until it has read what was
    written; what nobody waits for (that a call was given up, answers to it) is written at once or,
    to a server that reads nothing, not at all: it made calls five seconds longer than their limit.
    """

    def __init__(self, process: Process, on_end: Callable[[], None]) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin
        self._on_end = on_end

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        waits = isinstance(item.message, mcp_types.JSONRPCRequest)
        if not waits and self._stdin.transport.get_write_buffer_size() > MOST_UNREAD:
            return
        try:
            if waits:
                await self._stdin.drain()  # nothing more for a server that reads nothing
            self._stdin.write(text.encode("utf-8", "replace") + b"\n")
            if waits:
                await self._stdin.drain()
        except OSError:
            self._on_end()  # the server reads no more
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        return  # ``limited_stdio`` ends the server


@dataclass(slots=True)
class _Line:
    """One line as it comes, or several that are one message; of a long one only its two ends are
    kept.
    """

    most: int
    size: int = 0
    kept: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    row_at: int = 0
    """Where the last line begins, of a message over several."""
    depth: int = 0
    """Braces and brackets that are open."""

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

    def end(self) -> list[SessionMessage] | None:
        """What was said up to the end of a line; None where the message goes on in the next one.

        Nothing where it is no message: many programs greet on standard output. An error for the
        call that it answers where it is too long or cannot be read.
        """
        if self.size > self.most:
            return self._refused(TOO_LARGE, bytes(self.kept), self.tail)
        row = bytes(self.kept[self.row_at :]).strip(_AROUND)
        if not self.depth and not row.startswith((b"{", b"[")):
            return []  # looked at first: a refusal takes ten times as long
        # on later lines a whole message says that what was begun before is none
        if (not self.depth or _NAMED in row) and (found := _read(row)) is not None:
            return found
        if self.depth or _BEGINS.match(row):
            bare = _STRING.sub(b"", row)
            opened, closed = (sum(map(bare.count, both)) for both in ((b"{", b"["), (b"}", b"]")))
            self.depth += opened - closed
            if self.depth > 0:
                self.add(b"\n")
                self.row_at = len(self.kept)
                return None
        return self._read_whole()

    def _read_whole(self) -> list[SessionMessage]:
        data = bytes(self.kept).strip(_AROUND)
        try:
            return _messages(_sound(data))
        except (ValueError, RecursionError):
            is_answer = b'"method"' not in data[:_SHOWN]
            return self._refused(mcp_types.INVALID_REQUEST, data, data[-_SHOWN:]) if is_answer else []

    def _refused(self, code: int, head: bytes, tail: bytes) -> list[SessionMessage]:
        """An error for the call that the line answers, where it says which one."""
        text = "the message cannot be read"
        if code == TOO_LARGE:
            text = f"the message is longer than {self.most} bytes"
        found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
        if found is None:
            return []
        error = mcp_types.ErrorData(code=code, message=text)
        return [
            SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))
        ]


def _read(data: bytes) -> list[SessionMessage] | None:
    try:
        return _messages(data)
    except (ValueError, RecursionError):
        return None


def _messages(data: bytes) -> list[SessionMessage]:
    """The message, or those of a batch, which protocol 2025-03-26 has; what is odd in one is left out.

    Raises:
        ValueError: it is no message.
        RecursionError: it is too deep.
    """
    if data.startswith(b"{"):
        return [SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False))]
    made = []
    for one in json.loads(data)[:MOST_IN_BATCH]:
        with suppress(ValidationError):
            told = mcp_types.jsonrpc_message_adapter.validate_python(one, by_name=False)
            made.append(SessionMessage(told))
    return made


def _sound(data: bytes) -> bytes:
    """JSON whose texts are UTF-8: another encoding's characters and half ones become ``?``."""
    told = json.loads(data.decode("utf-8", "replace"))
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


async def _stop(process: Process) -> None:
    """Close its input, wait, then end it and all that it started: at once, where the waiting is cut off."""
    if process.stdin is not None:
        process.stdin.close()
    drained = asyncio.create_task(_drain(process))
    try:
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                signal_all(process, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE_S)
                break
        await end_left(process)
    except BaseException:
        signal_all(process, signal.SIGKILL)
        raise
    finally:
        drained.cancel()
        await asyncio.gather(drained, return_exceptions=True)


async def _drain(process: Process) -> None:
    """A server that still writes must not be stuck on a full pipe."""
    assert process.stdout is not None
    while await process.stdout.read(65_536):
        pass
