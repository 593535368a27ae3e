"""Throughput against latency."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards.analyses.throughput import bin_for, knee, throughput
from dashboards.filters import Filters

S = 1_000_000_000


def three_levels(store, rounds=10):
    """As many seconds each with one user at 10 tokens/s, two at 8, four at 4.5: a request a second."""
    for place, (users, tokens) in enumerate(((1, 10), (2, 8), (4, 4.5))):
        store.requests(*(
            {"start": (place * rounds + n) * 2 * S, "decode": 2 * S, "OutputTokens": int(2 * tokens),
             "FirstTokenNs": users * S}
            for n in range(rounds) for _ in range(users)
        ))  # fmt: skip


def test_each_level_has_its_speed_and_the_knee_is_where_it_bends(store):
    """Worked by hand: 10, 16 and 18 tokens a second in all; the knee is at two users."""
    three_levels(store)
    found = throughput(store, Filters(), ["model"])
    one = found.overall
    assert [(v.label, v.seconds) for v in one.levels] == [("1", 20), ("2", 20), ("3-4", 20)]
    assert [v.tokens_per_s for v in one.levels] == pytest.approx([10, 16, 18])
    assert [v.user_tokens_per_s for v in one.levels] == pytest.approx([10, 8, 4.5])
    assert [v.concurrency for v in one.levels] == pytest.approx([1, 2, 4])
    assert [(v.requests, v.ttft_p50_ns) for v in one.levels] == [(10, S), (20, 2 * S), (40, 4 * S)]
    assert not any(v.thin for v in one.levels)
    assert (one.knee, one.knee_height) == ("2", pytest.approx(0.75 - 1 / 3))
    assert "Knee at concurrency 2: 16 tokens a second, 8 for one user" in found.reading[1]
    assert found.groups[0].levels == one.levels


def test_a_level_of_few_requests_is_thin_and_bears_no_knee(store):
    """Nine requests of one user beside the others: the level is shown, said, and not counted."""
    three_levels(store, rounds=9)
    store.requests(*({"start": (900 + 2 * n) * S, "decode": 2 * S, "OutputTokens": 8, "FirstTokenNs": S}
                     for n in range(12) for _ in range(8)))  # fmt: skip
    found = throughput(store, Filters())
    one = found.overall
    assert [(v.label, v.requests, v.thin) for v in one.levels] == [
        ("1", 9, True), ("2", 18, False), ("3-4", 36, False), ("5-8", 96, False),
    ]  # fmt: skip
    assert one.knee != "1"
    assert "Not counted for the knee, with fewer than 10 requests each: concurrency 1." in found.reading
    assert any("fewer than 10 requests began are thin" in line for line in found.assumptions)


def test_a_rush_of_few_has_no_knee(store):
    """1, 2 and 4 users for a moment: the curve bends, of seven requests in all."""
    three_levels(store, rounds=1)
    found = throughput(store, Filters())
    assert [v.tokens_per_s for v in found.overall.levels] == pytest.approx([10, 16, 18])
    assert found.overall.knee is None
    assert "Most tokens a second: 18, at concurrency 3-4 (thin: 4 requests began there)." in found.reading


def test_idle_bins_and_unknown_tokens(store):
    """A request without a count brings no tokens; the gap between two is no level."""
    store.requests({"decode": S}, {"start": 50 * S, "decode": S, "OutputTokens": 10})
    one = throughput(store, Filters()).overall
    assert (one.requests, one.without_tokens) == (2, 1)
    assert [(v.label, v.seconds, v.tokens_per_s) for v in one.levels] == [("1", 2, pytest.approx(5))]
    assert one.knee is None
    assert throughput(store, Filters(model=("x",))).overall.levels == ()


def test_a_curve_without_a_bend_has_no_knee():
    """In proportion, flat, too short, or bent the wrong way."""
    for points in ([(1, 1), (2, 2), (4, 4)], [(1, 5), (2, 5), (4, 5)], [(1, 1), (2, 9)], [],
                   [(1, 1), (2, 1.1), (4, 9)]):  # fmt: skip
        assert knee(points) is None
    assert knee([(1, 10), (2, 19), (4, 30), (8, 33), (16, 34)])[0] == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e6)), max_size=8))
def test_the_knee_is_one_of_the_levels(points):
    """Whatever the curve, and its height is at most 1."""
    found = knee(sorted(points))
    if found is not None:
        assert 0 <= found[0] < len(points)
        assert 0.1 <= found[1] <= 1


@settings(deadline=None)
@given(st.integers(0, 10**18))
def test_bins_are_at_most_a_thousand(window):
    """However long the window."""
    assert window <= bin_for(window) * 1000


def test_no_count_of_tokens_is_no_speed(store):
    """Five requests that tell none: no figure at all, and not 0 tokens a second."""
    store.requests(*({"start": n * S, "decode": S} for n in range(5)))
    found = throughput(store, Filters())
    assert [(v.tokens_per_s, v.user_tokens_per_s) for v in found.overall.levels] == [(None, None)]
    assert found.reading == ("No request tells its output tokens: throughput is not known.",)


def test_one_users_speed_is_that_of_requests_that_decode_and_tell_their_tokens(store):
    """11 tokens in 1 s beside one that tells none, one of one token, and one without a decode time."""
    store.requests(
        {"decode": S, "OutputTokens": 11}, {"decode": S},
        {"prefill": S, "OutputTokens": 1}, {"unattributed": S, "OutputTokens": 100},
    )  # fmt: skip
    (level,) = throughput(store, Filters()).overall.levels
    assert level.tokens_per_s == pytest.approx(112)
    assert level.user_tokens_per_s == pytest.approx(11)


def test_requests_too_short_for_a_level_are_said_to_be_there(store):
    """One of 5 ns in its bin of 100 ms is nearly idle; it was looked at all the same."""
    store.requests({"decode": 5, "OutputTokens": 2})
    found = throughput(store, Filters())
    assert (found.overall.requests, found.overall.levels) == (1, ())
    assert "too short" in found.reading[0]
