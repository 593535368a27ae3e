"""Two cores for a measurement: one for what is measured, one for what measures it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """``one`` and ``other`` are one core each of ``allowed``, and the same where there is no second.

    ``allowed`` is empty where the system binds no process to cores.
    """

    allowed: frozenset[int]
    one: frozenset[int]
    other: frozenset[int]

    @property
    def shared(self) -> bool:
        return self.one == self.other

    @property
    def doubt(self) -> str:
        """What the figures then hold; "" where each has its own core."""
        if not self.allowed:
            return "this system binds no process to a core: both sides ran wherever there was room"
        if self.shared:
            return "this process may use one core alone: both sides shared it and waited for each other"
        return ""

    def told(self, load: str) -> str:
        """The words on the load, with the doubt behind them."""
        return f"{load}; {self.doubt}" if self.doubt else load


def two_cores() -> Cores:
    """The first two that this process may use: a container's are seldom 0 and 1."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(frozenset(), frozenset(), frozenset())
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(allowed), frozenset(allowed[:1]), frozenset(allowed[1:2] or allowed[:1]))


def bind(cores: frozenset[int]) -> None:
    """Have this process run on ``cores`` alone; of none, wherever it did."""
    if cores:
        os.sched_setaffinity(0, cores)
