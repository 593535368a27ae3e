"""Where the spans of a request lie on the wall clock."""

from __future__ import annotations

from proxy.recorder import Recorder
from proxy.settings import ProxySettings
from tests.support.clock import FakeClock
from tests.support.live_server import MemorySink, RandomIds

HOUR_NS = 3600 * 10**9


def test_a_request_is_placed_by_the_wall_clock_of_its_beginning():
    """The clock is set by an hour during the first request: it stays whole, the second one follows."""
    clock, sink = FakeClock(), MemorySink()
    recorder = Recorder(ProxySettings(), clock, RandomIds(), sink, "upstream")
    began = clock.unix
    first = recorder.open("POST", "/v1/chat/completions", [], clock.mono_ns())
    clock.unix += HOUR_NS
    clock.advance(1)
    second = recorder.open("POST", "/v1/chat/completions", [], clock.mono_ns())
    clock.advance(2)
    recorder.close(first)
    recorder.close(second)
    roots = [spans[0] for spans in sink.requests]
    assert [((r.start_time or 0) - began, (r.end_time or 0) - began) for r in roots] == [
        (0, 3 * 10**9), (HOUR_NS + 10**9, HOUR_NS + 3 * 10**9),
    ]  # fmt: skip
