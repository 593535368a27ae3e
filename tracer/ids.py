"""Trace and span ids from the operating system's randomness.

Not from :mod:`random`: programs seed that, and forks inherit its state, so ids
of separate processes would collide and the user's own sequence would be disturbed.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol


class IdSource(Protocol):
    """Where ids come from; tests pass a counting one."""

    def trace_id(self) -> int:
        """A non-zero 128-bit id."""
        ...

    def span_id(self) -> int:
        """A non-zero 64-bit id."""
        ...


class RandomIds:
    """Ids that no seeding and no fork can repeat.

    Randomness is drawn from the system in blocks, because each draw is a system call;
    a forked child forgets the block that it shares with its parent.
    """

    _BLOCK = 4096

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._block = b""
        self._at = 0
        self._lock = threading.Lock()

    def trace_id(self) -> int:
        return int.from_bytes(self._take(16), "big") or 1

    def span_id(self) -> int:
        return int.from_bytes(self._take(8), "big") or 1

    def _take(self, size: int) -> bytes:
        with self._lock:
            if self._at + size > len(self._block) or self._owner != os.getpid():
                self._owner = os.getpid()
                self._block, self._at = os.urandom(self._BLOCK), 0
            taken = self._block[self._at : self._at + size]
            self._at += size
        return taken
