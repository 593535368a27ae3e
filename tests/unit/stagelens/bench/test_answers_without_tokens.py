"""Servers that answer 200 and stream nothing, or not at all: said, and within no limits."""

from __future__ import annotations

import json

import pytest

from stagelens.bench.assumptions import assumptions
from stagelens.bench.run import Ran, Runner
from stagelens.bench.settings import BenchSettings
from stagelens.bench.terminal import rates_in_words
from tests.fake_llm.dialects import DONE, content, delta, usage
from tests.fake_llm.server import Asked, Reply
from tests.support.load_target import CLOCK, answer, load_target, tags_of


def as_json(asked: Asked, text: str = "hi", tokens: int = 2) -> Reply:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}  # fmt: skip
    return Reply([json.dumps(body).encode()], content_type="application/json", framing="length")


def only_done(asked: Asked) -> Reply:
    return Reply([DONE])


def only_usage(asked: Asked) -> Reply:
    return Reply([usage(9, 3), DONE])


def after_the_probes(script):
    return lambda asked: script(asked) if "run" in tags_of(asked) else answer(asked)


async def ran(script, **given: object) -> tuple[Ran, str]:
    """What a run on ``script`` left, and its sentences."""
    told = {"concurrency": [1], "requests": 4, **given}
    async with load_target(after_the_probes(script)) as fake:
        made = BenchSettings(url=fake.url, warmup_s=0, input="20", output="3", **told)
        found = await Runner(made, "r", None, CLOCK).run()
    return found, " ".join(assumptions(made, (), [level for level, _ in found.levels]))


@pytest.mark.parametrize("script", [only_done, only_usage])
@pytest.mark.parametrize("limit", ["e2e", "tpot", "itl", "ttft"])
async def test_an_answer_without_a_token_is_said_and_within_no_limit(script, limit):
    """It is a whole answer, and nothing that a user could read."""
    found, told = await ran(script, goodput={limit: 60})
    [(level, _)] = found.levels
    assert (level.counts.ok, level.empty, level.good, level.meets_limits) == (4, 4, 0, False)
    assert "4 of 4 answers held no token" in told


@pytest.mark.parametrize("limit", ["ttft", "itl"])
async def test_a_server_that_does_not_stream_is_said(limit):
    """Its answers have no TTFT and no gaps, which are no short ones."""
    found, told = await ran(as_json, goodput={limit: 60})
    [(level, _)] = found.levels
    assert (level.unstreamed, level.empty, level.good) == (4, 0, 0)
    assert "4 of 4 answers did not come as the stream that was asked for" in told


async def test_whole_answers_that_were_asked_for_are_no_fault():
    """With --no-stream nothing is said; one that is empty is."""
    _, told = await ran(as_json, stream=False)
    assert "stream that was asked for" not in told
    assert "held no token" not in told
    found, told = await ran(lambda a: as_json(a, "", 0), stream=False, goodput={"e2e": 60})
    assert found.levels[0][0].good == 0
    assert "4 of 4 answers held no token" in told


@pytest.mark.parametrize(
    ("script", "limit", "said"),
    [
        (as_json, "ttft", "no answer has a TTFT: the server did not stream"),
        (as_json, "itl", "no answer has a TTFT: the server did not stream"),
        (only_done, "ttft", "no answer held a token"),
        (only_usage, "e2e", "no answer held a token"),
    ],
)
async def test_a_search_ends_after_one_rate_at_which_nothing_could_meet_the_limit(script, limit, said):
    """A lower rate would not help; the verdict says why."""
    found, _ = await ran(
        script, concurrency=[], rate=[40], find_max=True, goodput={limit: 60}, requests=None,
        arrivals="constant", duration_s=0.2,
    )
    assert len(found.levels) == 1
    assert said in found.search.ended_by


def uncounted(asked: Asked) -> Reply:
    return Reply([content("a"), content("b"), delta(finish="stop"), DONE])


@pytest.mark.parametrize(
    ("script", "limits", "untold"),
    [
        (uncounted, {"tpot": 60}, 4),
        (uncounted, {"ttft": 60, "tpot": 60}, 4),
        (uncounted, {"ttft": 60}, 0),
        (as_json, {"ttft": 60}, 4),
        (as_json, {"e2e": 60}, 0),
        (only_done, {"tpot": 60}, 0),
    ],
)
async def test_answers_of_which_a_limited_figure_is_not_known_are_told(script, limits, untold):
    """They are within no limits, and nobody says that they were slow."""
    found, _ = await ran(script, goodput=limits)
    [(level, _)] = found.levels
    told = " ".join(rates_in_words(level))
    assert level.untold == untold
    assert (f"of {untold} more it is not known" in told) == bool(untold)
