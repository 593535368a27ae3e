"""What the prefix cache saved and what preemption cost."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from dashboards.analyses.cache import cache, work_again
from dashboards.analyses.stats import slope
from dashboards.filters import Filters
from dashboards.terminal.costs import render_cache

MS = 1_000_000
US = 1000


def test_hits_saved_their_tokens_times_the_measured_rate(store):
    """Prefill takes 2 ms and 50 us a token: 3 hits of 100 tokens saved 15 ms, no more, no less."""
    for tokens in (100, 200, 400, 800):
        store.requests({"prefill": 2 * MS + tokens * 50 * US, "InputTokens": tokens, "CachedTokens": 0})
    hit = {"prefill": 2 * MS + 60 * 50 * US, "InputTokens": 160, "CachedTokens": 100}
    store.requests(hit, hit, hit, {"prefill": 9})
    found = cache(store, Filters(), ["cached"])
    one = found.overall
    assert (one.requests, one.cached_known, one.hits) == (8, 7, 3)
    assert (one.input_tokens, one.cached_tokens) == (1980, 300)
    assert (one.saved_ns, one.low_ns, one.high_ns) == (15 * MS, 15 * MS, 15 * MS)
    assert found.rates[0].ns_per_token == 50 * US
    assert "3 of 7 requests hit the cache, with 15 % of all prompt tokens" in found.reading[0]
    assert {g.key["cached"]: g.hits for g in found.groups} == {"yes": 3, "no": 0, None: 0}


def test_more_cached_than_input_tokens_are_counted_as_all_of_them_and_said(store):
    """150 cached of 100, 50 of 100, and 30 of nobody knows how many: 150 of 200, and 180 in all."""
    store.requests(
        {"prefill": MS, "InputTokens": 100, "CachedTokens": 150},
        {"prefill": MS, "InputTokens": 100, "CachedTokens": 50},
        {"prefill": MS, "CachedTokens": 30}, {"prefill": MS, "InputTokens": 900},
    )  # fmt: skip
    found = cache(store, Filters())
    one = found.overall
    assert (one.input_tokens, one.cached_tokens, one.hit_share) == (200, 180, 0.75)
    assert one.cached_over_input == 1
    assert "1 request told more cached than input tokens: of these the input tokens" in found.reading[1]


def test_a_rate_that_cannot_be_measured_is_not_guessed(store):
    """Prefills of one length have no slope: what was saved is null and said."""
    store.requests(*({"prefill": MS, "InputTokens": 20, "CachedTokens": 10} for _ in range(4)))
    found = cache(store, Filters())
    assert (found.overall.hits, found.overall.saved_ns, found.rates[0].ns_per_token) == (4, None, None)
    assert "not known: no two prefills" in found.reading[0]
    assert "no request" in cache(store, Filters(model=("x",))).reading[0]


def test_hits_that_nobody_tells_are_no_data(store):
    """No cached tokens: no hits and nothing saved, not 0; no input tokens: no share of them, not 0 %."""
    store.requests({"prefill": MS, "InputTokens": 20})
    console = Console(width=100, file=io.StringIO(), record=True)
    render_cache(cache(store, Filters()), console)
    row = next(line.split() for line in console.export_text().splitlines() if line.startswith("all"))
    assert row == ["all", "1", "-", "-", "1.00", "-", "-", "-"]
    store.truncate("requests")
    store.requests({"prefill": MS, "CachedTokens": 0})
    said = cache(store, Filters()).reading[0]
    assert said.startswith(
        "0 of 1 request hit the cache, what share of the prompt tokens is not known"
    )


def test_work_done_again_is_from_the_resumption_to_the_next_token():
    """Three tokens made, off from 25 to 60, the next token at 75: 15, and 103 tokens at most."""
    tokens = [0, 10, 20, 75, 85]
    marks = [("resumed", 60), ("preempted", 25)]
    assert work_again(tokens, marks, 100) == [(15, 103)]
    assert work_again(tokens, [("preempted", 80)], 100) == []
    assert work_again(tokens, [("preempted", 80), ("resumed", 90)], 100) == []


def test_preemption_costs_time_and_tokens(store):
    """From the stored spans: 35 ms off, 15 ms computing again, at most 103 tokens."""
    store.traced(
        1, prefill=(0, 5 * MS), decode=(5 * MS, 90 * MS), Preemptions=1, PreemptedNs=35 * MS,
        InputTokens=100, ItlKind="token", ItlNs=[10 * MS, 10 * MS, 55 * MS, 10 * MS],
        StageCounts={"prefill": 1, "decode": 1},
        marks=[("preempted", 30 * MS), ("resumed", 65 * MS)],
    )  # fmt: skip
    store.requests({"decode": MS, "Preemptions": 2, "PreemptedNs": MS})
    one = cache(store, Filters()).overall.preempted
    assert (one.requests, one.preemptions, one.off_ns, one.known) == (2, 3, 36 * MS, 1)
    assert (one.again_ns, one.tokens_again_at_most) == (15 * MS, 103)


def test_the_slopes_interval_covers_the_truth_about_as_often_as_it_says():
    """Noise with outliers around 3 a token: 88 to 100 of 100 intervals hold 3."""
    draw = random.Random(5)
    held = 0
    for _ in range(100):
        points = [(float(x), 3 * x + draw.gauss(0, 10) + 500 * (draw.random() < 0.05)) for x in range(40)]
        found = slope(points)
        held += found.low <= 3 <= found.high
    assert 88 <= held <= 100


@pytest.mark.parametrize("points", [[], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 6.0)]])
def test_a_slope_needs_two_different_places(points):
    """None, not zero."""
    assert slope(points) is None
