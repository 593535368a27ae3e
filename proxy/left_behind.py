"""The end of an event loop that no task can put off: one that catches its cancel is left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Collection
from typing import Any, TypeVar

T = TypeVar("T")
END_S = 2.0
"""What the tasks that are left at the end get to end in order, once they are cancelled."""

log = logging.getLogger("stagelens.proxy")


async def with_its_end(main: Awaitable[T]) -> T:
    """What ``main`` gives; the loop's other tasks are cancelled then. Python's own end of a loop
    waits for them without limit: one tool that goes on after a cancel kept the server for ever.
    """
    try:
        return await main
    finally:
        await _end(asyncio.all_tasks() - {asyncio.current_task()})


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    stubborn = (await asyncio.wait(tasks, timeout=END_S))[1] if tasks else set()
    if not stubborn:
        return
    for task in stubborn:
        asyncio._unregister_task(task)  # noqa: SLF001  documented, for makers of tasks
    names = ", ".join(sorted({task.get_name() for task in stubborn})[:10])
    log.warning("left behind at the end, since no cancel ends it: %s", names)
    # held for ever, in a thread that Python does not take down: to free a coroutine is to throw into
    # it once more, and one that catches that too would hold up the end of the process
    threading.Thread(target=_hold, args=(stubborn,), daemon=True, name="stagelens-left").start()


def _hold(_: object) -> None:
    threading.Event().wait()
