"""Two runs or windows against each other."""

from __future__ import annotations

import random

import pytest

from dashboards.analyses.compare import interval, parse_side
from dashboards.analyses.whatif import parse_changes, whatif
from dashboards.api import build_api
from dashboards.client import CollectorClient
from dashboards.errors import BadValueError
from dashboards.filters import Filters
from dashboards.source import StoreSource
from tests.support.clock import FakeClock
from tests.unit.dashboards.test_read_api import Running

S = 1_000_000_000
BASE = 1_767_268_800_000_000_000
CLOCK = FakeClock(unix_ns=BASE + 3600 * S)


def known(store):
    """A: first token 0.2 s, done 8 s. B: first token 1 s, done 4 s."""
    for run, first, done, out in (("A", S // 5, 8 * S, 100), ("B", S, 4 * S, 200)):
        one = {"prefill": first, "decode": done - first, "FirstTokenNs": first}
        more = {"Tags": {"run": run}, "InputTokens": 50, "OutputTokens": out}
        store.requests(*({**one, **more} for _ in range(5)))


def test_one_feels_faster_and_the_other_finishes_sooner(store):
    """Both are said, with their figures; the different lengths are warned of."""
    known(store)
    found = StoreSource(store, CLOCK).compare(Filters(), "A", "B")
    assert found.reading[0].startswith("A feels faster (first token 0.2 s in A, 1 s in B")
    assert found.reading[1].startswith("B finishes sooner (done 8 s in A, 4 s in B")
    e2e = next(d for d in found.differences if (d.quantity, d.percentile) == ("e2e", "p50"))
    assert (e2e.n_a, e2e.n_b) == (5, 5)
    assert (e2e.difference_ns, e2e.low_ns, e2e.high_ns) == (-4 * S, -4 * S, -4 * S)
    assert [w[:32] for w in found.warnings] == ["The mix of output lengths differ"]


def test_the_api_and_its_client_give_the_same_answers(store):
    """Over a real socket: compare and what-if equal those of the store; mistakes are 400."""
    known(store)
    source = StoreSource(store, CLOCK)
    with Running(build_api(store, None, clock=CLOCK)) as served:
        client = CollectorClient(served.url)
        assert client.compare(Filters(), "A", "B") == source.compare(Filters(), "A", "B")
        asked = client.whatif(Filters(), ["decode=-20%"])
        assert asked == whatif(store, Filters(), parse_changes(["decode=-20%"]))
        assert served.get("/api/v1/whatif")[0] == 400
        assert served.get("/api/v1/compare?a=x")[0] == 400


def test_a_side_without_requests_is_said_and_has_no_figures(store):
    """No data is null and never 0."""
    found = StoreSource(store, CLOCK).compare(Filters(), "2h..1h", "gone")
    assert found.warnings[:2] == ("A has no requests.", "B has no requests.")
    assert {d.difference_ns for d in found.differences} == {None}


def test_intervals_cover_the_true_difference_about_as_often_as_they_say():
    """95 % intervals of the median's difference (true value 1): 88 to 100 of 100 hold it."""
    draw = random.Random(7)
    held = 0
    for trial in range(100):
        xs = sorted(draw.gauss(0, 1) for _ in range(80))
        ys = sorted(draw.gauss(1, 1) for _ in range(80))
        low, high = interval(xs, ys, 0.5, seed=trial)
        held += low <= 1 <= high
    assert 88 <= held <= 100


@pytest.mark.parametrize("text", ["", "..1h", "1h..", "1h..2h", "x..now"])
def test_sides_that_are_neither_run_nor_window_are_refused(text):
    """An open or reversed window, an empty name, no time."""
    with pytest.raises(BadValueError, match="window"):
        parse_side(text, Filters(), CLOCK.unix_ns())


def test_lengths_can_be_matched(store):
    """A has 4 short and 2 long answers, B 1 short and 5 long: both keep 1 short and 2 long."""
    for run, short, long in (("A", 4, 2), ("B", 1, 5)):
        for n, tokens in ((short, 20), (long, 500)):
            one = {"decode": tokens * S, "OutputTokens": tokens, "InputTokens": 50}
            store.requests(*({**one, "Tags": {"run": run}} for _ in range(n)))
    store.requests({"decode": 7 * S, "Tags": {"run": "A"}})
    found = StoreSource(store, CLOCK).compare(Filters(), "A", "B", match=True)
    assert (found.requests_a, found.requests_b) == (3, 3)
    assert (found.left_out_a, found.left_out_b, found.warnings) == (4, 3, ())
    assert {d.difference_ns for d in found.differences if d.quantity == "e2e"} == {0}
    assert "differs" in StoreSource(store, CLOCK).compare(Filters(), "A", "B").warnings[0]


def test_one_mean_of_two_mixes_is_warned_of(store):
    """Half short and half long prompts against middle ones: both have 1000 tokens in the mean."""
    for run, lengths in (("A", (10, 1990)), ("B", (1000, 1000))):
        one = {"decode": S, "OutputTokens": 50, "Tags": {"run": run}}
        store.requests(*({**one, "InputTokens": lengths[n % 2]} for n in range(60)))
    found = StoreSource(store, CLOCK).compare(Filters(), "A", "B")
    assert found.warnings == (
        ("The mix of input lengths differs (50 % against 100 % have 512-2047 tokens): "
         "differences may come from it."),
    )
    assert StoreSource(store, CLOCK).compare(Filters(), "A", "A").warnings == ()


def test_equal_sides_have_no_winner_and_single_requests_no_interval(store):
    """One request each: 1 s against 1 s is a tie; 1 s against 2 s is said without an interval."""
    for run, e2e in (("A", S), ("B", S), ("C", 2 * S)):
        store.requests({"decode": e2e, "Tags": {"run": run}})
    source = StoreSource(store, CLOCK)
    assert source.compare(Filters(), "A", "B").reading[1].startswith("Neither finishes sooner")
    other = source.compare(Filters(), "A", "C").reading[1]
    assert other.startswith("A finishes sooner")
    assert "no interval" in other


def test_matching_that_leaves_nothing_says_that_lengths_were_missing(store):
    """B's requests tell no input tokens: they are there, and none could be matched."""
    store.requests(
        {"decode": S, "InputTokens": 9, "OutputTokens": 9, "Tags": {"run": "A"}},
        {"decode": S, "OutputTokens": 9, "Tags": {"run": "B"}},
    )
    found = StoreSource(store, CLOCK).compare(Filters(), "A", "B", match=True)
    assert found.warnings[0] == "A has no requests of known length that the other has too."
    assert (found.left_out_a, found.left_out_b) == (1, 1)
