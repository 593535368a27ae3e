"""A Python function in processes of its own, so that one that hangs can be ended with all that it
started.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import Any

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.processes import signal_all, start

MOST_PROCESSES = 8
"""At once, of one function; a call beyond them fails as ``busy``."""


class Isolated:
    """The function at an import path; each call has a process to itself, which is used again."""

    def __init__(self, path: str, most_bytes: int) -> None:
        """``most_bytes``: the longest answer read of a process."""
        self._path = path
        self._most = most_bytes
        self._idle: list[Process] = []
        self._busy = 0

    async def call(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the function returns, as JSON can tell it.

        Raises:
            StageProblem: it raised (the exception's name is the kind), its process ended, its
                result is too long, or too many calls run. A call that is cancelled ends its process.
        """
        if self._busy >= MOST_PROCESSES:
            raise StageProblem("busy", f"{MOST_PROCESSES} calls are running: try again later")
        self._busy += 1
        process = None
        try:
            process = self._living() or await self._start()
            told = await self._ask(process, {"args": args, "kwargs": kwargs})
            self._idle.append(process)
            process = None
        finally:
            self._busy -= 1
            if process is not None:
                await _end(process)
        if "error" in told:
            raise StageProblem(str(told["error"]), f"it failed: {told['error']}")
        return told.get("value")

    async def close(self) -> None:
        """End the processes that wait for a call."""
        while self._idle:
            await _end(self._idle.pop())

    def _living(self) -> Process | None:
        """A process that waits for a call; those that were ended meanwhile are dropped."""
        while self._idle:
            if (process := self._idle.pop()).returncode is None:
                return process
        return None

    async def _start(self) -> Process:
        command = (sys.executable, "-m", "proxy.pipelines.worker", self._path)
        return await start(*command, stderr=DEVNULL, limit=self._most)

    async def _ask(self, process: Process, given: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(given, default=str).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except ValueError:
            raise StageProblem("result_too_large", "the result is too long") from None
        except OSError:
            line = b""
        if not line:
            raise StageProblem("process_ended", "the function's process ended during the call")
        told = json.loads(line)
        return told if isinstance(told, dict) else {}


async def _end(process: Process) -> None:
    signal_all(process, signal.SIGKILL)  # with what the function started
    await asyncio.shield(process.wait())
    if process.stdin is not None:
        process.stdin.close()
