"""Two clocks, tied once."""

from __future__ import annotations

from tests.support.clock import FakeClock
from tracer.clock import STEP_NS, Anchor, SystemClock, Tie, seconds_to_ns


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


def test_a_long_process_places_what_begins_after_a_step_by_the_new_wall_clock():
    """A host that slept for an hour, and NTP's step of 5 ms; less than two readings take is none."""
    clock = FakeClock()
    tie = Tie(clock)
    before = tie.anchor()
    clock.advance(3600)
    assert tie.anchor() is before
    clock.unix += STEP_NS - 1
    assert tie.anchor() is before
    for step in (3600 * 10**9, -5_000_000):
        clock.unix += step
        now = tie.anchor()
        assert now.to_unix_ns(clock.mono) == clock.unix
        assert tie.anchor() is now


def test_a_thread_that_loses_its_core_between_the_readings_takes_the_closest_of_three():
    """Twice 3 ms pass between the first reading and the last, once 100 ns."""
    waits = iter([3_000_000, 100, 3_000_000])

    class Interrupted(FakeClock):
        def unix_ns(self) -> int:
            told = self.unix
            self.advance(next(waits) / 1e9)
            return told

    anchor = Anchor.take(Interrupted())
    assert abs(anchor.to_unix_ns(0) - FakeClock().unix + FakeClock().mono) <= 100
