"""The only door to the clocks.

Durations come from the monotonic clock and are named ``_mono_ns``. The wall
clock only places a span on the time axis (``_unix_ns``); it may step, so no two
of its readings are ever subtracted. A process takes one anchor that ties the two
and derives every wall time from it: a span can then never end before it starts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """What Stagelens needs of time."""

    def mono_ns(self) -> int:
        """Nanoseconds of the host's monotonic clock, as ``time.monotonic`` counts."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The host's clocks. ``mono_ns`` is comparable between processes of one host."""

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        return time.time_ns()  # noqa: TID251  the one place that may read the wall clock


@dataclass(frozen=True, slots=True)
class Anchor:
    """One instant on both clocks."""

    mono_ns: int
    unix_ns: int

    @classmethod
    def take(cls, clock: Clock) -> Anchor:
        return cls(mono_ns=clock.mono_ns(), unix_ns=clock.unix_ns())

    def to_unix_ns(self, mono_ns: int) -> int:
        """The wall time of a monotonic stamp; differences are kept exactly."""
        return self.unix_ns + (mono_ns - self.mono_ns)


def seconds_to_ns(seconds: float) -> int:
    """A monotonic stamp in float seconds, as vLLM gives it, to whole nanoseconds."""
    return round(seconds * 1_000_000_000)
