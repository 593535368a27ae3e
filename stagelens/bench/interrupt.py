"""Ctrl-C and SIGTERM, from the first request to the last line of the result: what was measured is told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from tracer.clock import Clock, SystemClock

GRACE_NS = 500_000_000
"""One that comes so soon after another is the same press: a key that bounced or was held, or a
shell and its child that were both told."""


class Interrupts:
    """What an interrupt does is what was last named with :meth:`then`.

    Entered, it takes ``SIGINT`` and ``SIGTERM`` over (in the main thread, which alone gets
    signals); else nothing changes. ``exit_code`` is of the first that was obeyed. Until something
    is named an interrupt raises ``KeyboardInterrupt``.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._obeyed_ns: int | None = None
        self._action: Callable[[], object] = self.leave
        self._before: dict[signal.Signals, Any] = {}
        self.exit_code = 128 + signal.SIGINT

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGINT, signal.SIGTERM):
                self._before[one] = signal.signal(one, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for one, before in self._before.items():
            signal.signal(one, before)

    def deafen(self) -> None:
        """All is told: one more changes nothing until the process has ended.

        Python gives signals back to the system as it ends, and the next one would kill it, with
        another exit code than the first one's.
        """
        for one in self._before:
            signal.signal(one, signal.SIG_IGN)
        self._before.clear()

    def then(self, action: Callable[[], object]) -> None:
        """From now on an interrupt does this; it is called between any two steps of the program."""
        self._action = action

    def leave(self) -> None:
        """Nothing is lost that was not asked to be."""
        raise KeyboardInterrupt

    def keep(self) -> None:
        """A result is about to be told: the next one leaves, if that takes too long."""
        self.then(self.leave)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        now_ns = self._clock.mono_ns()
        if self._obeyed_ns is not None and now_ns - self._obeyed_ns < GRACE_NS:
            return
        if self._obeyed_ns is None:
            self.exit_code = 128 + number
        self._obeyed_ns = now_ns
        self._action()
