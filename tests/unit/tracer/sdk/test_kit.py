"""The kit for tests of traced code."""

from __future__ import annotations

import tracer
from tracer.testing import CountingIds, FakeClock, recording, spans_as_tree


def test_ids_and_times_are_the_same_in_each_run():
    """With counted ids and a clock that is moved by hand, two runs give equal spans."""

    def once() -> list[str]:
        clock = FakeClock()
        with recording(clock, ids=CountingIds()) as seen, tracer.trace("answer"):
            clock.forward(0.5)
            with tracer.stage("prompt"):
                clock.forward(1)
        assert spans_as_tree(seen.spans) == {"answer": {"prompt": {}}}
        return [span.to_json() for span in seen.spans]

    first = once()
    assert first == once()
    assert "0x0000000000000002" in first[1]
