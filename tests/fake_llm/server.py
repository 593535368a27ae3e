"""A server that answers each request by a script of bytes, pauses, gates and breaks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext


@dataclass(frozen=True)
class Pause:
    """Wait until ``at_s`` seconds after the request was whole."""

    at_s: float


@dataclass(frozen=True)
class Gate:
    """Wait until the test opens ``event``."""

    event: asyncio.Event


@dataclass(frozen=True)
class Reset:
    """Break the TCP connection off with RST."""


@dataclass(frozen=True)
class Hang:
    """Say nothing more until the peer hangs up."""


Step = bytes | Pause | Gate | Reset | Hang


@dataclass(frozen=True)
class Reply:
    """``framing``: chunked (each bytes step one chunk), length, close, or raw (steps hold it all)."""

    steps: Sequence[Step] = ()
    status: int = 200
    reason: str = "OK"
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "text/event-stream"
    framing: str = "chunked"
    head_first: bool = True


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass
class FakeLlm:
    """``script`` answers each request; ``hung_up`` counts peers that left before the end."""

    script: Callable[[Asked], Reply]
    url: str = ""
    port: int = 0
    requests: list[Asked] = field(default_factory=list)
    connections: int = 0
    hung_up: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    left_at_s: float | None = None
    began_s: float = 0.0
    late_s: float = 0.0
    """How late, at most, a step of the last reply left: what a busy machine adds to its times."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected.set()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.asked.set()
                reply = self.script(request)
                if not await self._answer(reply, request, reader, writer):
                    break
        writer.close()

    async def _answer(
        self, reply: Reply, request: Asked, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        began = self.began_s = asyncio.get_running_loop().time()
        gone = asyncio.create_task(reader.read(1))
        playing = asyncio.create_task(_play(reply, request, writer, began, self))
        await asyncio.wait({gone, playing}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            playing.cancel()
            await asyncio.wait({playing})
            self.hung_up += 1
            self.left_at_s = asyncio.get_running_loop().time()
            self.left.set()
            return False
        if gone.done() and (gone.exception() or not gone.result()):
            return False
        if not gone.done():
            gone.cancel()
            await asyncio.wait({gone})
        return playing.exception() is None and playing.result()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    asked = Asked(method, target, headers)
    if (length := asked.header("content-length")) is not None:
        asked.body = await reader.readexactly(int(length))
    elif asked.header("transfer-encoding"):
        while size := int((await reader.readline()).strip(), 16):
            asked.body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
    return asked


async def _play(
    reply: Reply, request: Asked, writer: asyncio.StreamWriter, began: float, fake: FakeLlm
) -> bool:
    """Write the reply; whether the connection may serve another request."""
    head = b"" if reply.framing == "raw" else _head(reply, request)
    if reply.head_first and head:
        writer.write(head)
        await writer.drain()
        head = b""
    due = began
    for step in reply.steps:
        due = began + step.at_s if isinstance(step, Pause) else due
        if isinstance(step, bytes):
            fake.late_s = max(fake.late_s, asyncio.get_running_loop().time() - due)
            chunked = reply.framing == "chunked"
            writer.write(head + (b"%x\r\n%s\r\n" % (len(step), step) if chunked else step))
            head = b""
            await writer.drain()
            await asyncio.sleep(0)
        elif not await _wait(step, writer, began):
            return False
    if reply.framing == "chunked":
        writer.write(head + b"0\r\n\r\n")
    elif head:
        writer.write(head)
    await writer.drain()
    return reply.framing in ("chunked", "length")


async def _wait(step: Step, writer: asyncio.StreamWriter, began: float) -> bool:
    if isinstance(step, Pause):
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, began + step.at_s - now))
    elif isinstance(step, Gate):
        await step.event.wait()
    elif isinstance(step, Hang):
        await asyncio.Event().wait()
    elif isinstance(step, Reset):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False
    return True


def _head(reply: Reply, request: Asked) -> bytes:
    headers = [("Content-Type", reply.content_type), *reply.headers]
    if reply.framing == "chunked":
        headers.append(("Transfer-Encoding", "chunked"))
    elif reply.framing == "length" and not any(n.lower() == "content-length" for n, _ in headers):
        size = sum(len(s) for s in reply.steps if isinstance(s, bytes))
        headers.append(("Content-Length", str(size)))
    elif reply.framing == "close":
        headers.append(("Connection", "close"))
    lines = [f"HTTP/1.1 {reply.status} {reply.reason}", *(f"{n}: {v}" for n, v in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@asynccontextmanager
async def fake_llm(
    script: Callable[[Asked], Reply] | Reply, tls: SSLContext | None = None
) -> AsyncIterator[FakeLlm]:
    """Serve ``script`` on a free port of loopback, behind TLS where ``tls`` is given."""
    made = FakeLlm(script if callable(script) else lambda _: script)
    running: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made._serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{made.port}"
    try:
        yield made
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
