"""The highest rate within limits: good requests, the search, its ends."""

from __future__ import annotations

from itertools import count

import pytest

from stagelens.bench import measure, run
from stagelens.bench.assumptions import assumptions
from stagelens.bench.limits import at_percentile, is_good, parse_limits
from stagelens.bench.run import Runner
from stagelens.bench.sample import Sample
from stagelens.bench.search import find_highest
from stagelens.bench.settings import BenchSettings
from tests.fake_llm.server import Reply
from tests.support.load_target import CLOCK, answer, load_target, tags_of

MS = 1_000_000


def sample(ttft_ms: float, tpot_ms: float = 10, output: int = 3, error: str = "") -> Sample:
    first = int(ttft_ms * MS)
    last = first + int(tpot_ms * MS * max(output - 1, 0))
    return Sample(0, 0, True, sent_ns=1, first_token_ns=first, last_token_ns=last, end_ns=last + 1,
                  output_tokens=output, gaps=[int(tpot_ms * MS)] * (output - 1), error=error)  # fmt: skip


@pytest.mark.parametrize("capacity", [0.3, 1.0, 7.3, 64.0, 1000.0])
@pytest.mark.parametrize("first", [1.0, 20.0])
async def test_the_search_ends_just_below_what_the_server_can(capacity, first):
    """Within the precision, whether it began below or above; no rate is tried twice."""
    async def meets(rate: float) -> bool:
        return rate <= capacity

    found = await find_highest(first, 0.05, meets)
    assert found.best <= capacity < found.failed <= found.best * 1.05
    assert len(set(found.tried)) == len(found.tried) <= 25


async def test_a_server_that_never_meets_the_limits_has_no_rate():
    """The search gives up at a hundredth of a request a second."""
    async def meets(_: float) -> bool:
        return False

    found = await find_highest(1.0, 0.05, meets)
    assert (found.best, found.failed) == (None, min(found.tried))


async def test_an_interrupt_leaves_what_is_known():
    """No verdict on the rate that was running."""
    async def meets(rate: float) -> bool | None:
        return None if rate > 4 else True

    found = await find_highest(1.0, 0.05, meets)
    assert (found.best, found.failed, found.tried) == (4.0, None, [1.0, 2.0, 4.0])


def test_a_good_request_meets_all_limits():
    """A failed one meets none; an answer of one token has no gap to be too long."""
    limits = parse_limits(["ttft=0.5,tpot=0.05"])
    assert limits == {"ttft": 0.5, "tpot": 0.05}
    assert is_good(sample(500), limits)
    assert not is_good(sample(501), limits)
    assert not is_good(sample(100, tpot_ms=51), limits)
    assert not is_good(sample(100, error="timeout"), limits)
    assert is_good(sample(100, output=1), limits)
    assert not is_good(sample(100, tpot_ms=30), {"itl": 0.02})
    assert not is_good(sample(100), {"e2e": 0.1})


def test_failed_requests_count_as_slower_than_all_others():
    """One in ten failed: p95 is beyond any limit, p50 is not."""
    samples = [*(sample(100) for _ in range(9)), sample(1, error="http_500")]
    assert at_percentile(samples, {"ttft": 1}, 95) == {"ttft": None}
    assert at_percentile(samples, {"ttft": 1}, 50) == {"ttft": 100 * MS}


@pytest.mark.parametrize(
    "text", ["ttft", "ttft=", "ttft=0", "ttft=-1", "speed=1", "ttft=nan", "ttft=1,ttft=2"]
)
def test_a_limit_that_is_none_is_refused(text):
    """In a sentence."""
    with pytest.raises(ValueError, match="limit"):
        parse_limits([text])


async def test_a_server_without_limits_ends_the_search_at_the_highest_rate_there_is():
    """No rate beyond those that can be given."""
    async def meets(_: float) -> bool:
        return True

    found = await find_highest(1.0, 0.05, meets)
    assert found.failed is None
    assert found.best == max(found.tried) <= 1_000_000 < found.best * 2


def test_an_answer_whose_tokens_were_not_counted_does_not_meet_a_limit_of_tpot():
    """It may have had many; an answer of one token has none, and is not asked."""
    uncounted, one = sample(100, output=3), sample(100, output=1)
    uncounted.output_tokens = None
    limits = {"tpot": 1.0}
    assert [is_good(s, limits) for s in (uncounted, one)] == [False, True]
    assert at_percentile([uncounted] * 3, limits, 95) == {"tpot": None}
    assert at_percentile([one, sample(100, tpot_ms=7)], limits, 95) == {"tpot": 7 * MS}


@pytest.fixture
def on_time(monkeypatch):
    """No pause of this machine counts: what is told is the server's doing alone."""
    for module in (run, measure):
        monkeypatch.setattr(module, "is_behind", lambda _: False)


async def searched(script, **given: object):
    async with load_target(script) as fake:
        told = {"goodput": {"ttft": 60}, "rate": [30], "precision": 0.3, "arrivals": "constant", **given}
        made = BenchSettings(url=fake.url, find_max=True, warmup_s=0, input="20", output="3", **told)
        return await Runner(made, "r", None, CLOCK).run()


def failing_beyond(capacity: float):
    """A server that drops every other request of a level faster than it can."""
    seen = count()

    def script(asked):
        rate = float(tags_of(asked).get("level", "rate0").removeprefix("rate").removesuffix(".again"))
        if rate > capacity and next(seen) % 2:
            return Reply([b"busy"], status=503, framing="length")
        return answer(asked)

    return script


@pytest.mark.usefixtures("on_time")
async def test_the_search_tells_the_highest_rate_and_its_curve():
    """A server that drops requests beyond 60 a second; the curve is by rate.

    Whether a request was answered decides, and no time of this machine.
    """
    found = (await searched(failing_beyond(60), duration_s=0.5)).search
    assert found.best_rate <= 60 < found.first_failed <= found.best_rate * 1.3
    rates = [point.rate for point in found.curve]
    assert rates == sorted(rates)
    assert found.ended_by == ""
    assert [point.meets for point in found.curve] == [rate <= 60 for rate in rates]


async def test_a_rate_at_which_this_client_paused_once_is_tried_again(monkeypatch):
    """One pause of a busy machine is as long as a short level, and ends no search."""
    monkeypatch.setattr(run, "is_behind", lambda driver: driver.step.label == "rate60")
    monkeypatch.setattr(measure, "is_behind", lambda driver: driver.step.label == "rate60")
    ran = await searched(failing_beyond(60), duration_s=0.2)
    assert [level.label for level, _ in ran.levels][:4] == ["rate30", "rate60", "rate60.again", "rate120"]
    assert [level.run for level, _ in ran.levels][1:3] == ["r.rate60", "r.rate60.again"]
    assert (ran.search.ended_by, ran.search.best_rate) == ("", 60)
    assert [point.rate for point in ran.search.curve].count(60) == 1


async def test_a_rate_that_this_client_cannot_send_twice_has_no_verdict(monkeypatch):
    """It is the client that is too slow."""
    for module in (run, measure):
        monkeypatch.setattr(module, "is_behind", lambda driver: driver.step.rate == 60)
    ran = await searched(failing_beyond(60), duration_s=0.2)
    assert [level.label for level, _ in ran.levels] == ["rate30", "rate60", "rate60.again"]
    assert (ran.search.best_rate, ran.search.first_failed) == (30, None)
    assert ran.search.ended_by.startswith("this client cannot send 60/s")


@pytest.mark.usefixtures("on_time")
async def test_a_server_that_answers_nothing_ends_the_search_after_three_rates():
    """Down to a hundredth a second it would take hours; what it said is told."""
    def script(asked):
        if "run" in tags_of(asked):
            return Reply([b"boom"], status=500, framing="length")
        return answer(asked)

    ran = await searched(script, rate=[20], duration_s=0.5)
    assert [level.rate for level, _ in ran.levels] == [20, 10, 5]
    assert (ran.search.best_rate, ran.search.first_failed) == (None, 10)
    assert ran.search.ended_by.startswith("at 20, 10, 5 requests/s not one was answered (http_500: boom)")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"goodput": {"ttft": 0.5}}, ""),
        ({"goodput": {"tpot": 9}}, ""),
        ({"goodput": {"e2e": 5, "ttft": 0.5}}, ""),
        ({"goodput": {"e2e": 5}}, "5% too high makes requests wait 1.5 s at most, which e2e <= 5 s"),
        ({"goodput": {"e2e": 5}}, "--duration 100 or more tells"),
        ({"goodput": {"ttft": 0.5}, "duration_s": 1}, "wait 0.05 s at most, which ttft <= 0.5 s"),
    ],
)
def test_a_search_too_short_for_its_limits_says_so(given, said):
    """A queue that grows for so short a time stays within limits that a longer load would miss."""
    told = " ".join(assumptions(BenchSettings(url="http://127.0.0.1:1", find_max=True, **given), (), ()))
    assert said in told
    assert ("Search:" in told) == bool(said)


@pytest.mark.usefixtures("on_time")
async def test_a_search_ends_where_a_single_request_misses_the_limits():
    """Alone at the server, it is as quick as it gets."""
    def script(asked):
        return answer(asked, ttft_s=0.02)

    ran = await searched(script, goodput={"ttft": 0.01}, rate=[4], duration_s=0.2)
    assert [(level.rate, level.in_flight_peak) for level, _ in ran.levels] == [(4, 1)]
    assert (ran.search.best_rate, ran.search.first_failed) == (None, 4)
    assert ran.search.ended_by == "at 4/s requests came one at a time and missed the limits all the same"
