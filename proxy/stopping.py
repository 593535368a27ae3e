"""What SIGINT and SIGTERM do to a server, from its start on: once, and in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that comes inside is heard at the end: a program that is just being started must be
    known to those who end it.
    """
    if threading.current_thread() is not threading.main_thread():  # which signals never interrupt
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


class Stopping:
    """The handler of both signals, for the main thread.

    Before anything is served it ends the start: where the start's own code runs, by
    KeyboardInterrupt; where the event loop waits, by a cancel of its task, so that what was
    started is ended in order. Later it asks the server to stop. Another signal changes nothing:
    `timeout` and terminals send two, and the second would break into the clean-up of the first.
    """

    def __init__(self) -> None:
        self.told = False
        self.stop = asyncio.Event()
        """Set once a server that serves is told to stop."""
        self._serves = False
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    def install(self) -> None:
        """Take both signals."""
        for number in SIGNALS:
            signal.signal(number, self)

    def __call__(self, *_: object) -> None:
        if self.told or self._over:
            return
        self.told = True
        loop, task = self._loop, self._task
        if loop is None or task is None:
            raise KeyboardInterrupt
        if self._serves:
            loop.call_soon_threadsafe(self.stop.set)
        elif asyncio.current_task(loop) is task:
            raise KeyboardInterrupt
        else:
            loop.call_soon_threadsafe(task.cancel)

    def serves(self) -> None:
        """From now on a signal stops the server.

        Raises:
            KeyboardInterrupt: one came before; a library that was being loaded swallowed it.
        """
        if self.told:
            raise KeyboardInterrupt
        self.install()  # an engine's libraries may have taken them
        self._serves = True

    def over(self) -> None:
        """From now on a signal changes nothing: what was started is being ended."""
        self._over = True

    def ended(self) -> None:
        """All is ended and the program about to: a signal must not change its exit code."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    async def watched(self, main: Awaitable[T]) -> T:
        """What ``main`` gives, which a signal ends from now on: CancelledError, KeyboardInterrupt."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            return await main
        finally:
            self._over = True
