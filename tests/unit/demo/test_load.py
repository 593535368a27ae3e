"""What the load reports of a server, good or bad, over a real socket."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from examples.demo.load import Outcome, run_load, summary
from examples.demo.plan import Ask, Phase, plan
from tests.unit.demo.fake_openai import FakeOpenAI, serving


async def send(fake: FakeOpenAI, phases: list[Phase]) -> Outcome:
    async with serving(fake) as url:
        return await run_load(url, "m", phases, lambda _: None)


def one(kind: str, *, stream: bool = True, n: int = 1) -> list[Phase]:
    ask = Ask("c1", kind, "Hello", 4, stream=stream, temperature=0.7, n=n)
    return [Phase(1, [ask])]


async def test_all_requests_are_sent_and_answered():
    """Each planned request is made once, with its tags, at no more than its phase's concurrency."""
    fake, phases = FakeOpenAI(), plan(7)
    outcome = await send(fake, phases)
    assert outcome.failed == []
    assert outcome.refused == []
    asked = sorted((a.phase, a.kind, a.max_tokens) for p in phases for a in p.asks)
    got = sorted((r["tags"]["phase"], r["tags"]["kind"], r["max_tokens"]) for r in fake.requests)
    assert got == asked
    assert fake.peak <= 8
    assert "seed" not in {key for r in fake.requests for key in r}
    assert all(s.trace_id == "a" * 32 and s.e2e_ns > 0 for s in outcome.seen)
    assert all((s.first_token_ns is not None) == s.ask.stream for s in outcome.seen)


@pytest.mark.parametrize(
    ("fault", "stream", "said"),
    [
        ("500", True, "InternalServerError"),
        ("500", False, "as told"),
        ("400", True, "BadRequestError"),
        ("cut", True, "0 of 2 choices finished"),
        ("reset", True, "Error: "),
    ],
)
async def test_a_failed_request_is_reported(fault, stream, said):
    """An error answer, a stream cut short and a broken connection each count as failed, with why."""
    outcome = await send(FakeOpenAI({"chat": fault}), one("chat", stream=stream, n=2))
    assert len(outcome.failed) == 1
    assert said in outcome.failed[0].error
    assert outcome.answered == []
    assert "1 failed" in summary(outcome)


async def test_one_failure_does_not_stop_the_others():
    """The rest of the load goes on."""
    outcome = await send(FakeOpenAI({"long": "reset", "text": "500"}), plan(7))
    kinds = {s.ask.kind for s in outcome.failed}
    assert kinds == {"long", "text"}
    assert len(outcome.seen) == sum(len(p.asks) for p in plan(7))


async def test_a_feature_that_the_server_lacks_is_told_apart():
    """A refused tool call is counted as refused, and a refused plain question as failed."""
    fake = FakeOpenAI({"tool": "400"})
    outcome = await send(fake, one("tool", stream=False))
    assert len(outcome.refused) == 1
    assert outcome.failed == []
    assert "1 refused by the server" in summary(outcome)
    assert fake.requests[0]["tools"]


async def test_no_server_is_reported_for_every_request():
    """A closed port fails each request instead of ending the load."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    phases = [dataclasses.replace(p, asks=p.asks[:2]) for p in plan(7)]
    outcome = await run_load(f"http://127.0.0.1:{port}", "m", phases, lambda _: None)
    assert len(outcome.failed) == 6
    assert {s.error.split(":")[0] for s in outcome.failed} == {"APIConnectionError"}
