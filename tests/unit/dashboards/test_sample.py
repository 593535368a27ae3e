"""A part of very many requests: what is read of them, and what an answer says of it."""

from __future__ import annotations

import io
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.analyses.attribution import attribution
from dashboards.analyses.cache import cache
from dashboards.analyses.compare import Side, compare
from dashboards.analyses.goodput import goodput, parse_limits
from dashboards.analyses.paths import critical_paths
from dashboards.analyses.throughput import inside, throughput
from dashboards.analyses.whatif import parse_changes, whatif
from dashboards.filters import Filters
from dashboards.queries.base import QueryLimits
from dashboards.queries.sample import chosen_slices, cut, part_of
from dashboards.queries.steps import Slice, counted
from dashboards.terminal.analysis import render_whatif
from dashboards.terminal.console import make_console
from tests.unit.dashboards.conftest import BASE_UNIX_NS, HandStore

S = 1_000_000_000
MANY = QueryLimits(most_read=1000)
N = 6000
ANY = Filters()


@pytest.fixture(scope="module")
def filled(module_store: HandStore) -> HandStore:
    """Six thousand requests, one a second, whose times follow no rhythm of their order."""
    module_store.requests(*(
        {"start": n * S, "queue": _drawn(n, 1) % 1000 * 1_000_000 + 1, "prefill": 200_000_000,
         "decode": (1 + _drawn(n, 2) % 100) * S // 10,
         "FirstTokenNs": _drawn(n, 1) % 1000 * 1_000_000 + 200_000_001,
         "TpotNs": float(10_000_000 + _drawn(n, 3) % 1000 * 20_000),
         "InputTokens": 10 + _drawn(n, 4) % 500, "OutputTokens": 1 + _drawn(n, 2) % 100,
         "CachedTokens": 5 * (n % 2), "Model": "small" if _drawn(n, 5) % 3 else "large",
         "Status": "error" if n % 60 == 7 else "ok"}
        for n in range(N)
    ))  # fmt: skip
    return module_store


def _drawn(n: int, salt: int) -> int:
    return (n * 2_654_435_761 + salt * 40_503) * 2_246_822_519 >> 7 & 0xFFFFFFF


steps = st.lists(st.integers(1, 5000), min_size=1, max_size=60).map(
    lambda rows: [Slice(i * 1000, (i + 1) * 1000, float(n)) for i, n in enumerate(rows)]
)


@given(steps, st.integers(1, 3000))
def test_slices_divide_the_time_and_the_requests(given_steps, rows):
    """None overlaps, none is missing, and none holds two slices' requests or more."""
    found = cut(given_steps, rows)
    assert found[0].begin == given_steps[0].begin
    assert found[-1].end == given_steps[-1].end
    assert all(a.end == b.begin for a, b in pairwise(found))
    assert sum(s.rows for s in found) == pytest.approx(sum(s.rows for s in given_steps))
    assert all(s.rows >= rows or s is found[-1] for s in found)
    assert all(s.rows < 3 * rows or s.end - s.begin == 1 for s in found)


@given(st.integers(1, 400), st.integers(1, 60))
def test_of_each_k_slices_that_follow_one_another_one_is_read(n, one_in):
    """Whichever it is; the rest at the end may have none."""
    every = [Slice(i, i + 1, 1.0) for i in range(n)]
    kept = [one.begin for one in chosen_slices(every, one_in)]
    assert [at // one_in for at in kept][: n // one_in] == list(range(n // one_in))
    assert n // one_in <= len(kept) <= math.ceil(n / one_in)
    assert kept == sorted(set(kept))


def test_every_place_among_k_slices_is_read_about_equally_often():
    """So that no rhythm of the load falls in with what is read."""
    every = [Slice(i, i + 1, 1.0) for i in range(6400)]
    places = [one.begin % 8 for one in chosen_slices(every, 8)]
    assert {places.count(place) for place in range(8)} <= {99, 100, 101}


def test_few_requests_are_all_read(filled):
    """Up to the limit, and with ``exact`` beyond it."""
    assert part_of(filled, ANY, QueryLimits(most_read=N)).sampled is None
    assert part_of(filled, Filters(exact=True), MANY).sampled is None
    assert part_of(filled, Filters(model=("nobody",)), MANY).sampled is None


def test_a_part_says_of_how_many_it_is(filled):
    """One in six, about a thousand of the six thousand; the same ones each time."""
    part = part_of(filled, ANY, MANY)
    told = part.sampled
    assert (told.one_in, told.of, told.slices) == (6, N, len(part.slices))
    assert 45 <= told.slices <= 55
    assert 900 <= told.read <= 1100
    assert part == part_of(filled, ANY, MANY)
    assert f"{told.read:,} of 6,000 requests" in part.told[0]
    assert counted(filled, ANY, MANY).total == N


def test_requests_that_came_in_one_burst_are_cut_as_finely(store):
    """Two thousand in two seconds, and one a day later: still many slices out of the burst."""
    store.requests(*({"start": n * 1_000_000, "decode": S} for n in range(2000)))
    store.requests({"start": 86_400 * S, "decode": S})
    part = part_of(store, ANY, QueryLimits(most_read=500))
    holding = [s for s in part.slices if s.begin < BASE_UNIX_NS + 2 * S]
    assert len(holding) >= 25
    assert 350 <= part.sampled.read <= 450


def test_what_if_over_a_part_lies_within_the_intervals_of_all(filled):
    """Its p50 and p95 lie where 99.9 % of samples of its size would put them."""
    changes = parse_changes(["decode=-20%"])
    part = whatif(filled, ANY, changes, MANY)
    assert part.requests == N
    assert part.sampled.sentence() in part.assumptions
    values = sorted(
        int(row["v"])  # type: ignore[call-overload]
        for row in filled.query(f"SELECT E2ENs AS v FROM {filled.database}.requests", {})
    )
    for one in part.effects:
        if one.measure == "e2e" and one.percentile in {"p50", "p95"}:
            n, p = part.sampled.read, float(one.percentile[1:]) / 100
            assert one.n == n
            reach = 3.29 * math.sqrt(p * (1 - p) / n)
            low, high = (values[round((p + side * reach) * (N - 1))] for side in (-1, 1))
            assert low <= one.before_ns <= high
    exact = whatif(filled, Filters(exact=True), changes, MANY)
    assert exact.sampled is None
    assert exact.effects == whatif(filled, ANY, changes).effects


def test_attribution_of_a_part_says_so_and_counts_what_was_read(filled):
    """Slow and middle ones are among those read; the stages still add up."""
    found = attribution(filled, ANY, "e2e", ("model",), MANY)
    assert found.requests == found.sampled.read < 1100
    assert found.slow == pytest.approx(found.requests / 20, rel=0.2)
    assert sum(s.share for s in found.stages) == pytest.approx(1)
    assert found.sampled.sentence() in found.reading


def test_counts_and_rates_of_goodput_stay_those_of_all(filled):
    """Only the stages that broke the limits are those of a part, and add up to what was read."""
    limits = parse_limits("700ms", "25ms", "8s")
    part = goodput(filled, ANY, limits, ("model",), None, MANY)
    exact = goodput(filled, ANY, limits, ("model",))
    assert (part.stages_sampled.of, exact.stages_sampled) == (N, None)
    for ours, theirs in zip((part.overall, *part.groups), (exact.overall, *exact.groups), strict=True):
        assert ours.model_dump(exclude={"broken"}) == theirs.model_dump(exclude={"broken"})
        for one, told in zip(ours.broken, theirs.broken, strict=True):
            assert (one.limit, one.n) == (told.limit, told.n)
            assert told.read == told.n == sum(told.stages.values())
            assert 0 < sum(one.stages.values()) == one.read < one.n
    assert "one slice of time in 6; all other counts and rates are of all." in part.reading[-1]


def test_tokens_and_hits_of_the_cache_stay_those_of_all(filled):
    """Only the rates are measured on a part."""
    part, exact = cache(filled, ANY, ("model",), MANY), cache(filled, ANY, ("model",))
    known = {"models", "saved_ns", "low_ns", "high_ns"}
    for ours, theirs in zip((part.overall, *part.groups), (exact.overall, *exact.groups), strict=True):
        assert ours.model_dump(exclude=known) == theirs.model_dump(exclude=known)
    assert (part.rates_sampled.of, exact.rates_sampled) == (N, None)
    assert any("of all 6,000 requests" in line for line in part.assumptions)


def test_throughput_of_a_part_is_that_of_all(filled):
    """One request a second of 1 token per 0.1 s: the same speed, from fewer bins."""
    part, exact = throughput(filled, ANY, (), MANY), throughput(filled, ANY)
    ours = {level.label: level for level in part.overall.levels}
    theirs = {level.label: level for level in exact.overall.levels}
    assert part.overall.requests == exact.overall.requests == N
    assert (part.sampled.of, exact.sampled) == (N, None)
    common = max(theirs.values(), key=lambda level: level.seconds)
    same = ours[common.label]
    assert same.user_tokens_per_s == pytest.approx(common.user_tokens_per_s, rel=0.05)
    assert same.tokens_per_s == pytest.approx(common.tokens_per_s, rel=0.15)
    assert sum(level.seconds for level in ours.values()) < N / 4
    assert f"{part.sampled.slices} slices of time, one in 6" in part.reading[-1]


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 500), st.integers(1, 90)), max_size=6))
def test_only_bins_that_lie_in_a_slice_as_a_whole_are_looked_at(width, pairs):
    """What happens in part outside is not known in full."""
    slices = [Slice(at, at + long, 1.0) for at, long in pairs]
    for place in inside(slices, 0, width):
        assert any(s.begin <= place * width and (place + 1) * width <= s.end for s in slices)


def test_paths_and_comparisons_of_a_part_say_so(filled):
    """The critical path in its sentences, a comparison for each side."""
    paths = critical_paths(filled, ANY, (), MANY)
    assert paths.overall.chosen == paths.sampled.read
    assert paths.sampled.sentence() in paths.reading
    small, large = (Side(m, Filters(model=(m,))) for m in ("small", "large"))
    both = compare(filled, small, large, MANY)
    assert (both.sampled_a.of, both.sampled_b.of) == (both.requests_a, both.requests_b)
    assert both.requests_a + both.requests_b == N
    assert both.assumptions[0] == f"A: {both.sampled_a.sentence()}"
    assert compare(filled, small, large).sampled_a is None


def test_the_command_line_says_it_too(filled):
    """Beside the table, in words."""
    file = io.StringIO()
    render_whatif(whatif(filled, ANY, parse_changes(["decode=-20%"]), MANY), make_console(file, 100))
    assert "of 6,000 requests" in " ".join(file.getvalue().split())
