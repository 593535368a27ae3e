"""Trying a write until the store takes it, will never take it, or time is up."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from collectors.store.errors import StoreBusy, StoreError, StoreRefused, StoreTooLarge
from collectors.write.writer import MOST_PAUSE_S, WARN_EVERY_NS
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
MEMORY_TRIES = 3
"""Times that one row is tried which the store lacks the memory for."""
STOPPED = Exception("stopped")


class Attempts:
    """Retries with jitter. ``halt`` ends the waiting, the deadline the trying."""

    def __init__(self, clock: Clock, first_pause_s: float) -> None:
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._deadline_mono_ns: int | None = None
        self._warn_due_mono_ns = 0
        self.halt = threading.Event()
        self.failing = False

    def end_within(self, deadline_s: float) -> None:
        """Said twice, the first counts."""
        if self._deadline_mono_ns is None:
            self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
        self.halt.set()

    def attempt(self, write: Callable[[], None], what: str, *, single: bool) -> Exception | None:
        """None once it is in; ``STOPPED``; or the problem when it never can be as it is.

        What is not ``single`` may be cut when the store lacks memory, so it is given back.
        """
        pause_s, memory = self._first_pause_s, 0
        while not self._out_of_time():
            try:
                write()
            except StoreTooLarge as problem:
                memory += 1
                if not single or memory >= MEMORY_TRIES:
                    return problem
            except StoreRefused as problem:
                return problem
            except (StoreBusy, StoreError) as problem:
                self.failing = True
                self.warn("the store does not take %s yet: %s", what, problem)
            except Exception as problem:  # noqa: BLE001  a fault of ours with these very rows
                return problem
            else:
                self.failing = False
                return None
            self._pause(random.uniform(0, pause_s))  # noqa: S311  jitter
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
        return STOPPED

    def warn(self, text: str, *values: object) -> None:
        """At most one line in a while."""
        now = self._clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + WARN_EVERY_NS
            log.error(text, *values)

    def _out_of_time(self) -> bool:
        deadline = self._deadline_mono_ns
        return deadline is not None and self._clock.mono_ns() >= deadline

    def _pause(self, seconds: float) -> None:
        """Wait before the next try; being stopped ends it, but later waits are still waited."""
        if self.halt.is_set():
            time.sleep(min(seconds, self._first_pause_s))
        else:
            self.halt.wait(seconds)
