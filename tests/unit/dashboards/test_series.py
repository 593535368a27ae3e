"""Requests over time: each step has its own percentiles, and every request is in one cell."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.errors import BadValueError
from dashboards.filters import parse_filters
from dashboards.queries.series import MOST_STEPS, series, step_for
from tests.unit.dashboards.conftest import BASE_UNIX_NS, NOW_UNIX_NS

S = 1_000_000_000
MINUTE = 60 * S


def hour():
    return parse_filters(now_unix_ns=NOW_UNIX_NS, since="1h")


def test_each_step_has_the_figures_of_its_own_requests(store):
    """Three in the first half minute, one error in the third; steps without requests are not there."""
    store.requests(
        {"start": 0, "decode": 1 * S, "FirstTokenNs": 2 * S // 10, "OutputTokens": 7},
        {"start": 5 * S, "decode": 2 * S}, {"start": 6 * S, "decode": 3 * S},
        {"start": 65 * S, "decode": 5 * S, "Status": "error", "OutputTokens": 2},
    )  # fmt: skip
    found = series(store, hour(), now_unix_ns=NOW_UNIX_NS)
    assert found.step_ns == 30 * S
    assert [(s.start_unix_ns - BASE_UNIX_NS) // S for s in found.steps] == [0, 60]
    first, second = found.steps
    assert (first.requests, first.errors, first.output_tokens, first.ttft_n) == (3, 0, 7, 1)
    assert first.ttft_p50_ns == 2 * S // 10
    assert first.e2e_p50_ns == pytest.approx(2 * S)
    assert (second.requests, second.errors, second.ttft_p50_ns) == (1, 1, None)
    assert second.e2e_p99_ns == 5 * S


@pytest.mark.parametrize(("measure", "total"), [("e2e", 3), ("ttft", 1)])
def test_every_request_with_the_measure_is_in_one_cell_that_holds_it(store, measure, total):
    """The bounds are those of the value; what has none is in no cell."""
    store.requests(
        {"start": 0, "decode": 1 * S, "FirstTokenNs": 7 * S // 10},
        {"start": 5 * S, "decode": 3 * S}, {"start": 6 * S, "decode": 3 * S},
    )  # fmt: skip
    found = series(store, hour(), now_unix_ns=NOW_UNIX_NS, measure=measure)
    assert sum(c.n for c in found.cells) == total
    values = [S, 3 * S] if measure == "e2e" else [7 * S // 10]
    assert all(any(c.low_ns <= v < c.high_ns for v in values) for c in found.cells)


def test_without_a_window_it_begins_with_the_first_request_and_an_unknown_measure_is_refused(store):
    """All that is stored; and one sentence for a measure there is not."""
    store.requests({"start": 7 * S, "decode": S})
    found = series(store, parse_filters(now_unix_ns=NOW_UNIX_NS), now_unix_ns=NOW_UNIX_NS)
    assert found.from_unix_ns == BASE_UNIX_NS + 7 * S
    with pytest.raises(BadValueError, match="measure 'speed' is not known"):
        series(store, hour(), now_unix_ns=NOW_UNIX_NS, measure="speed")


def test_a_clock_that_is_ahead_does_not_stretch_the_axis(store):
    """One request 30 years after now: counted, in no step and no cell; in a window that ends then it is."""
    ahead = 30 * 365 * 86_400 * S
    store.requests({"start": 0, "decode": S}, {"start": ahead, "decode": S})
    found = series(store, hour(), now_unix_ns=NOW_UNIX_NS)
    assert (found.later, len(found.steps), sum(c.n for c in found.cells)) == (1, 1, 1)
    every = parse_filters(now_unix_ns=NOW_UNIX_NS)
    assert series(store, every, now_unix_ns=NOW_UNIX_NS).later == 1
    until = parse_filters(now_unix_ns=NOW_UNIX_NS, since="1h", until="2060-01-01")
    whole = series(store, until, now_unix_ns=NOW_UNIX_NS)
    assert (whole.later, len(whole.steps)) == (0, 2)


@given(st.integers(0, 2**62))
def test_the_steps_of_any_window_are_not_too_many(window):
    """At most ``MOST_STEPS`` of them cover it."""
    assert math.ceil(window / step_for(window)) <= MOST_STEPS
