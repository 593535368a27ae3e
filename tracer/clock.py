"""The only door to the clocks.

Durations come from the monotonic clock and are named ``_mono_ns``. The wall
clock only places a span on the time axis (``_unix_ns``); it may step, so no two
of its readings are ever subtracted. A process takes one anchor that ties the two
and derives every wall time from it: a span can then never end before it starts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STEP_NS = 20_000
"""A wall clock that is further from where its anchor has it was set; reading both takes less."""
RECENT_NS = 60_000_000_000
"""An older stamp is not one of the kernel's for bytes just read."""


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

    mono_ns = staticmethod(time.monotonic_ns)
    unix_ns = staticmethod(time.time_ns)  # noqa: TID251  the one place that may read the wall clock

    def mono_of_recent(self, unix_ns: int) -> int:
        """The monotonic stamp of a wall-clock stamp taken moments ago, as by the kernel.

        Both clocks are read together, so a step of the wall clock matters only if it
        happened in those moments; an age beyond ``RECENT_NS``, or in the future, is
        taken for such a step and the answer is now.
        """
        now_mono, now_unix = self.mono_ns(), self.unix_ns()
        age = now_unix - unix_ns
        return now_mono - age if 0 <= age <= RECENT_NS else now_mono


@dataclass(frozen=True, slots=True)
class Anchor:
    """One instant on both clocks."""

    mono_ns: int
    unix_ns: int

    @classmethod
    def take(cls, clock: Clock) -> Anchor:
        """Of three readings the one with the least between the clocks: a thread may lose its core there."""
        tries = []
        for _ in range(3):
            before, unix_ns, after = clock.mono_ns(), clock.unix_ns(), clock.mono_ns()
            tries.append((after - before, cls((before + after) // 2, unix_ns)))
        return min(tries, key=lambda one: one[0])[1]

    @property
    def offset_ns(self) -> int:
        """The wall time at the monotonic clock's zero."""
        return self.unix_ns - self.mono_ns

    def to_unix_ns(self, mono_ns: int) -> int:
        """The wall time of a monotonic stamp; differences are kept exactly."""
        return self.unix_ns + (mono_ns - self.mono_ns)


class Tie:
    """The anchor of a process that runs long, taken anew when the wall clock was set.

    Not thread-safe, and need not be: two threads at once take two anchors that are alike.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor = Anchor.take(clock)

    def anchor(self) -> Anchor:
        """For what begins now; what has begun keeps the one it began with."""
        drift = self._clock.unix_ns() - self._anchor.to_unix_ns(self._clock.mono_ns())
        if not -STEP_NS < drift < STEP_NS:
            self._anchor = Anchor.take(self._clock)
        return self._anchor


def boot_id() -> str | None:
    """Names the boot of the kernel whose clocks this process reads; None where none is told.

    Processes of one id, in whatever container, read one wall clock; others have two.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def seconds_to_ns(seconds: float) -> int:
    """A monotonic stamp in float seconds, as vLLM gives it, to whole nanoseconds."""
    return round(seconds * 1_000_000_000)
