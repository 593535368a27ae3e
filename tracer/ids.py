"""Trace and span ids that no seeding and no fork repeats.

Not from the module :mod:`random`'s own generator: programs seed that, and forks inherit its
state, so ids of separate processes would collide and the user's own sequence would be
disturbed.
"""

from __future__ import annotations

import os
import random
import weakref
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
    """Ids from a generator of its own, seeded by the operating system.

    A forked child seeds it anew. There is no lock that a fork could leave taken. Ids tell
    spans apart; they are no secrets.
    """

    def __init__(self) -> None:
        self._bits = random.Random(os.urandom(32)).getrandbits  # noqa: S311  no secrets
        _ALL.add(self)

    def reseed(self) -> None:
        """Forget the sequence so far."""
        self._bits = random.Random(os.urandom(32)).getrandbits  # noqa: S311

    def trace_id(self) -> int:
        return self._bits(128) or 1

    def span_id(self) -> int:
        return self._bits(64) or 1


_ALL: weakref.WeakSet[RandomIds] = weakref.WeakSet()


def _after_fork() -> None:
    for ids in list(_ALL):
        ids.reseed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
