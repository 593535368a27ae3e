"""When a script began and ended, and when its call came to its server's door and left by it.

Lines of JSON in the file that the environment variable ``STAGELENS_TIMES`` names, one a call, of
the monotonic clock in nanoseconds: ``kind``, ``script`` and, where there is a door, ``door``.
They are written when the answer is out. Calls come one after the other.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from asyncio import BaseTransport, sleep
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SCRIPT: list[int] = []
"""Begin and end of the last script of this process."""
FILE = os.environ.get("STAGELENS_TIMES", "")


async def script(seconds: float) -> None:
    """Take so long, and note how long it was."""
    began = time.monotonic_ns()
    await sleep(seconds)
    SCRIPT[:] = (began, time.monotonic_ns())


def note(kind: str, door: tuple[int, int] | None = None) -> None:
    """One line for the last script, if there was one since the last line."""
    if SCRIPT and FILE:
        with Path(FILE).open("a", encoding="utf-8") as out:
            out.write(json.dumps({"kind": kind, "script": SCRIPT, "door": door}) + "\n")
    SCRIPT.clear()


def note_later(kind: str) -> None:
    """As ``note``, for a function that is not done yet."""
    if FILE:
        threading.Timer(0.05, note, (kind,)).start()


class _In(io.RawIOBase):
    came = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        data = os.read(0, len(into))
        _In.came = time.monotonic_ns()
        into[: len(data)] = data
        return len(data)


class _Out(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = time.monotonic_ns()
        size = os.write(1, data)
        note("mcp-stdio", (_In.came, left))
        return size


def watch_stdio() -> None:
    """Watch what this process reads and writes; before an MCP server takes them."""
    sys.stdin = SimpleNamespace(buffer=io.BufferedReader(_In()))  # type: ignore[assignment]
    out = io.BufferedWriter(_Out())
    sys.stdout = SimpleNamespace(buffer=out, flush=out.flush)  # type: ignore[assignment]


class _Writes:
    def __init__(self, inner: BaseTransport) -> None:
        self._inner = inner
        self.left = 0

    def write(self, data: bytes) -> None:
        self.left = time.monotonic_ns()
        self._inner.write(data)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def serve_web(app: Any, port: int) -> None:
    """Serve an ASGI application, its sockets watched."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Door(HttpToolsProtocol):
        came = 0

        def connection_made(self, transport: Any) -> None:
            self.writes = _Writes(transport)
            super().connection_made(self.writes)  # type: ignore[arg-type]

        def data_received(self, data: bytes) -> None:
            self.came = time.monotonic_ns()
            super().data_received(data)

        def on_response_complete(self) -> None:
            note("mcp-http", (self.came, self.writes.left))
            super().on_response_complete()

    uvicorn.run(app, port=port, http=Door, log_level="warning")
