"""Programs of tools: each leads a process group, and ends with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping
from typing import cast

LAST_WORDS_S = 0.2
"""What a program wrote before it ended is read for so long."""
GRACE_S = 0.2
"""What the processes that an ended program left behind get to end by themselves."""


async def start(
    *command: str, stderr: int = PIPE, env: Mapping[str, str] | None = None, limit: int = 65_536
) -> Process:
    """``command`` with its three pipes, in a session of its own; ``limit``: longest line read.

    Raises:
        OSError: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Protocol(limit, loop), *command,
        stdin=PIPE, stdout=PIPE, stderr=stderr, env=env, start_new_session=True,
    )  # fmt: skip
    return Process(transport, protocol, loop)


class _Protocol(SubprocessStreamProtocol):
    """The pipes end with the program, also where a process that it started keeps them open:
    nobody would hear of its end, and a call would wait for its time-out.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self._running: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._running = cast("asyncio.SubprocessTransport", transport)  # uvloop's is none by class
        super().connection_made(transport)

    def process_exited(self) -> None:
        super().process_exited()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._let_go)

    def _let_go(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        for number in range(3):
            if (pipe := running.get_pipe_transport(number)) is not None:
                pipe.close()


def signal_all(process: Process, number: signal.Signals) -> bool:
    """Send a signal to the program and all that it started; whether any of them was there."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def end_left(process: Process) -> None:
    """End what the ended program left behind in its group.

    The group's number is not given to another one while it has members.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not signal_all(process, number):
            return
        await asyncio.sleep(GRACE_S)
