"""Two clocks, tied once."""

from __future__ import annotations

from tests.support.clock import FakeClock
from tracer.clock import Anchor, SystemClock, seconds_to_ns


def test_a_wall_clock_that_steps_back_cannot_turn_a_span_round():
    """Wall time goes back 5 ms while 1 ms passes: the span still lasts 1 ms (faults 67)."""
    clock = FakeClock()
    anchor = Anchor.take(clock)
    start = clock.mono_ns()
    clock.mono += 1_000_000
    clock.unix -= 5_000_000
    end = clock.mono_ns()
    assert anchor.to_unix_ns(end) - anchor.to_unix_ns(start) == 1_000_000


def test_the_systems_clocks_tick_in_whole_nanoseconds():
    """Monotonic time never goes back, and wall time is of this century."""
    clock = SystemClock()
    first, second = clock.mono_ns(), clock.mono_ns()
    assert second >= first
    assert clock.unix_ns() > 1_600_000_000_000_000_000


def test_float_seconds_become_nanoseconds():
    """vLLM's float stamps keep their value to the nanosecond that a float can hold."""
    assert seconds_to_ns(1.5) == 1_500_000_000
    assert seconds_to_ns(100.000000001) == 100_000_000_001
