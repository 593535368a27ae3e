"""What a process does with its spans when it ends other than by the end of its program."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any

from tracer.sdk import runtime

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_prepared: list[object] = []


class _Children:
    """Remembered by ``multiprocessing``, which ends its forked children without ``atexit``."""


def prepare(on_sigterm: bool) -> None:
    """Flush at the end of ``multiprocessing``'s children, and at SIGTERM if that was asked for."""
    from multiprocessing import util

    if not _prepared:
        marker = _Children()
        _prepared.append(marker)
        util.register_after_fork(marker, lambda _: flush_at_end_of_child())
    at_main = threading.current_thread() is threading.main_thread()
    if on_sigterm and at_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def flush_at_end_of_child() -> None:
    """In a child of ``multiprocessing``: send what waits when its work is over."""
    from multiprocessing import util

    util.Finalize(None, runtime.shutdown, exitpriority=100)


def flushing(send: Send) -> Send:
    """An ASGI lifespan's ``send`` that first sends what waits when the server stops.

    uvicorn then ends the process by the signal that stopped it, and nothing runs at exit.
    """

    async def flushed(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown."):
            active = runtime.active()
            await asyncio.to_thread(runtime.flush, active.flush_s if active is not None else 0.0)
        await send(message)

    return flushed


def _terminated(number: int, _frame: FrameType | None) -> None:
    """On a thread of its own, because the one interrupted may hold a lock that is needed."""
    active = runtime.active()
    sending = threading.Thread(target=runtime.shutdown, daemon=True)
    sending.start()
    sending.join(1.0 + (active.flush_s if active is not None else 0.0))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
