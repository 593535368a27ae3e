"""The end of a loop and of its process that no tool can put off: what does not end is left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
END_S = 2.0
"""What the tasks that are left at the end get to end in order, once they are cancelled."""

_POOL = "stagelens-to-thread"

log = logging.getLogger("stagelens.proxy")


async def with_its_end(main: Awaitable[T]) -> T:
    """What ``main`` gives; the loop's other tasks are cancelled then. Python's own end of a loop
    waits for them without limit, and for the threads of ``asyncio.to_thread``: one tool that goes
    on after a cancel kept the server for ever.
    """
    pool = ThreadPoolExecutor(thread_name_prefix=_POOL)
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        return await main
    finally:
        await _end(asyncio.all_tasks() - {asyncio.current_task()})
        await _end_threads(pool)


def leave(code: int) -> NoReturn:
    """End the process with ``code``, all being told and stored; Python would wait for threads."""
    if not _threads():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(_POOL)]


async def _end_threads(pool: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    pool.shutdown(wait=False, cancel_futures=True)
    ends = loop.time() + END_S
    while (left := _threads()) and loop.time() < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # a thread's end has no event
    if left:
        log.warning("left behind at the end, threads of asyncio.to_thread that go on: %d", len(left))
        loop.set_default_executor(ThreadPoolExecutor(1))  # the loop's own end would wait for the pool


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
