"""Trace and span ids from the operating system's randomness.

Not from :mod:`random`: programs seed that, and forks inherit its state, so ids
of separate processes would collide and the user's own sequence would be disturbed.
"""

from __future__ import annotations

import os
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
    """Ids that no seeding and no fork can repeat."""

    def trace_id(self) -> int:
        return int.from_bytes(os.urandom(16), "big") or 1

    def span_id(self) -> int:
        return int.from_bytes(os.urandom(8), "big") or 1
