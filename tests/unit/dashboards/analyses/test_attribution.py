"""What makes the slow ones slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboards.analyses.attribution import attribution
from dashboards.analyses.stats import newcombe, wilson
from dashboards.errors import BadValueError
from dashboards.filters import Filters

MS = 1_000_000


def hundred(store):
    """94 requests of 100 ms decode; 6 slow ones with 400 ms queue more, of tenant t and long."""
    usual = {"decode": 100 * MS, "queue": 10 * MS, "InputTokens": 50, "Tags": {"tenant": "s"}}
    slow = {"decode": 100 * MS, "queue": 410 * MS, "InputTokens": 900, "Tags": {"tenant": "t"}}
    store.requests(*(usual for _ in range(94)), *(slow for _ in range(6)))


def test_the_stage_that_makes_them_slow_holds_the_whole_difference(store):
    """400 ms in queue: its share is 1, the other stages' 0; the tenant and length stand out."""
    hundred(store)
    found = attribution(store, Filters())
    assert (found.requests, found.slow, found.middle) == (100, 6, 94)
    assert (found.slow_mean_ns, found.middle_mean_ns) == (510 * MS, 110 * MS)
    by_stage = {one.stage: one for one in found.stages}
    assert by_stage["queue"].difference_ns == 400 * MS
    assert by_stage["queue"].share == 1
    assert by_stage["decode"].share == 0
    out = {(one.dimension, one.value) for one in found.slices if one.stands_out and one.difference > 0}
    assert out == {("tag:tenant", "t"), ("input_tokens", "512-2047")}
    assert "queue makes 100 % of it" in found.reading[0]
    assert "tag:tenant t: 100 % of the slow ones, 0 % of the middle ones." in found.reading


def test_ttft_is_divided_up_to_the_first_token(store):
    """The slow ones' 300 ms lie in prefill; what is after it is the rest."""
    usual = {"prefill": 50 * MS, "decode": MS, "FirstTokenNs": 60 * MS}
    slow = {"prefill": 350 * MS, "decode": MS, "FirstTokenNs": 360 * MS}
    store.requests(*(usual for _ in range(57)), *(slow for _ in range(3)), {"decode": 9})
    found = attribution(store, Filters(), "ttft", ["model"])
    assert (found.requests, found.without_measure, found.slow) == (60, 1, 3)
    shares = {one.stage: one.share for one in found.stages}
    assert shares == {"prompt": 0, "retrieval": 0, "queue": 0, "prefill": 1, "rest": 0}
    assert {one.dimension for one in found.slices} == {"model"}


def test_what_of_the_slices_is_not_shown_is_said(store):
    """Forty of many are shown; how many were compared stands beside them, and nothing where all are."""
    hundred(store)
    assert not any("slices compared" in one for one in attribution(store, Filters()).assumptions)
    slow = {"decode": 900 * MS, "Tags": {f"k{n}": "v" for n in range(60)}}
    store.requests(*(slow for _ in range(10)))
    found = attribution(store, Filters())
    assert len(found.slices) == 40
    assert any("slices compared the 40 that differ most are shown" in one for one in found.assumptions)
    store.requests(*({**slow, "Tags": {"user": str(n)}} for n in range(1100)))
    usual = {"decode": 100 * MS, "Tags": {"tenant": "s"}}
    store.requests(*(usual for _ in range(16_000)))
    found = attribution(store, Filters())
    assert any("1000 slices with the most requests" in one for one in found.assumptions)


def test_too_few_or_all_alike_say_nothing(store):
    """No figure is invented."""
    assert "nothing can be said" in attribution(store, Filters()).reading[0]
    store.requests(*({"decode": 5} for _ in range(30)))
    found = attribution(store, Filters())
    assert (found.stages, found.slices, found.slow) == ((), (), 0)
    assert "no longer than the middle ones" in found.reading[0]
    with pytest.raises(BadValueError, match="measure 'x' is not known"):
        attribution(store, Filters(), "x")


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), min_size=25, max_size=60))
def test_the_stages_differences_add_up_to_the_whole(store, rows):
    """Of any requests: the differences add up to that of E2E, the shares to 1."""
    store.empty()
    store.requests(*({"queue": q, "prefill": p, "decode": d} for q, p, d in rows))
    found = attribution(store, Filters())
    if found.stages:
        whole = found.slow_mean_ns - found.middle_mean_ns
        assert sum(one.difference_ns for one in found.stages) == pytest.approx(whole, rel=1e-9)
        assert sum(one.share for one in found.stages) == pytest.approx(1)
        assert whole > 0


def test_newcombes_interval_is_the_published_one():
    """56/70 against 48/80 (Newcombe 1998, table II, method 10): 0.0524 to 0.3339."""
    low, high = newcombe(56, 70, 48, 80)
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)
    assert wilson(0, 10)[0] == pytest.approx(0, abs=1e-12)


def test_many_equally_slow_ones_are_not_called_the_slowest_5_percent(store):
    """30 of 100 share the longest time: all are at the 95th percentile, and the sentence says so."""
    store.requests(*({"decode": (4000 if n < 30 else 2000) * 10**9} for n in range(100)))
    said = attribution(store, Filters()).reading[0]
    assert said.startswith("The slowest 30 %, many of them equally slow (n=30) take 2,000 s longer")
