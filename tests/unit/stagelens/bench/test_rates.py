"""What is said of requests a second: over the time that was measured, whatever fell on its edges."""

from __future__ import annotations

import asyncio
import errno
import json
from itertools import count, repeat

from stagelens.bench.assumptions import assumptions
from stagelens.bench.drive import AHEAD_CHARS, Driver, _made_ahead
from stagelens.bench.measure import make_level, no_verdict
from stagelens.bench.models import Level
from stagelens.bench.plan import Plan
from tests.fake_llm.server import Hang
from tests.support.load_target import CLOCK, answer, driver_for, load_target, talk

MS = 1_000_000


def every(gap_s: float):
    return (n * gap_s for n in count())


async def level_of(plan: Plan, script=answer, **settings: object) -> tuple[Level, Driver]:
    """The figures of one level against a fake with ``script``."""
    async with load_target(script) as fake:
        driver, client = driver_for(fake, plan, **settings)  # type: ignore[arg-type]
        await driver.run()
        await client.close()
    return make_level(driver, driver._settings), driver


async def test_one_request_in_a_long_level_is_few_a_second():
    """The level lasted 0.3 s with one request in it: not as many a second as its answer was short."""
    level, _ = await level_of(Plan(repeat(talk("a")), every(10)), rate=0.1, duration_s=0.3)
    assert level.counts.ok == 1
    assert level.window_s >= 0.3
    assert level.done_per_s == 1 / level.window_s
    assert level.offered_per_s <= 1 / 0.3


async def test_a_level_without_a_request_answered_none_a_second():
    """It was measured: that is 0, not "no data"."""
    level, _ = await level_of(
        Plan(repeat(talk("a")), iter([0.0, 9.0])), rate=1, duration_s=0.1, warmup_s=0.1
    )
    assert (level.counts.sent, level.counts.warmup, level.done_per_s) == (0, 1, 0.0)


async def test_a_plan_that_runs_out_ends_its_level():
    """A replay of less than its time: what follows the last answer is not measured."""
    plan = Plan(iter([talk("a")] * 3), iter([0.0, 0.01, 0.02]))
    level, driver = await level_of(plan, rate=1, duration_s=50)
    assert driver.span_ns == (driver.start_ns, None)
    assert level.window_s < 50
    assert level.counts.ok == 3


async def test_each_turn_is_a_request_that_was_sent():
    """Two conversations of three turns: six requests, over the gaps between them."""
    level, driver = await level_of(Plan(repeat(talk("a", "b", "c")), every(0.05)), rate=20, requests=2)
    sent = sorted(s.sent_ns for s in driver.samples)
    assert len(sent) == 6
    assert level.offered_per_s == 5 * 1e9 / (sent[-1] - sent[0])


async def test_what_hung_until_an_interrupt_was_in_flight():
    """The time goes on to the interrupt, and so do the requests that were never answered."""
    hanging = asyncio.Event()

    def script(asked):
        if len(fake.requests) == 1:
            return answer(asked)
        hanging.set()
        return answer(asked, before=[Hang()])

    async with load_target(script) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), every(0.01)), rate=100)
        running = asyncio.create_task(driver.run())
        await asyncio.wait_for(hanging.wait(), 20)
        await asyncio.sleep((200 * MS - (CLOCK.mono_ns() - driver.start_ns)) / 1e9)
        driver.stop()
        await asyncio.wait_for(running, 10)
        await client.close()
    level = make_level(driver, driver._settings)
    assert (level.counts.ok, level.counts.interrupted > 5) == (1, True)
    assert level.window_s >= (driver.stopped_ns - driver.start_ns) / 1e9 >= 0.2
    assert level.done_per_s == 1 / level.window_s
    assert level.in_flight_mean > 3


async def test_a_level_is_measured_for_its_time_after_a_warm_up_by_count():
    """However long the first requests take to send, all of the time comes after them."""
    level, driver = await level_of(
        Plan(repeat(talk("a")), every(0.02)), rate=50, duration_s=0.2, warmup_requests=15
    )
    assert [s.measured for s in driver.samples] == [False] * 15 + [True] * 10
    assert level.window_s >= 0.2


async def test_a_level_that_tells_nothing_of_its_rate_is_no_verdict():
    """No measured request, or a client that fell behind: neither is the server's doing."""
    limits = {"goodput": {"ttft": 5.0}}
    level, driver = await level_of(Plan(repeat(talk("a")), every(0.02)), rate=50, requests=20, **limits)
    driver.behind_ns = 0
    assert no_verdict(level, driver) == ""
    driver.behind_ns = 10**9
    assert no_verdict(level, driver) == "this client cannot send 50/s: it was 1 s behind after 0.38 s"
    empty, driver = await level_of(
        Plan(repeat(talk("a")), iter([0.0, 9.0])), rate=1, duration_s=0.1, warmup_s=0.1, **limits
    )
    assert no_verdict(empty, driver).startswith("at 1/s no request was measured: give more --duration")


async def test_a_client_without_sockets_is_not_the_servers_failure(monkeypatch):
    """Counted by a kind of its own, told, and no verdict on the rate."""
    def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with load_target() as fake:
        driver, client = driver_for(
            fake, Plan(repeat(talk("a")), every(0.02)), rate=50, requests=3, goodput={"ttft": 5.0}
        )
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", none_left)
        await driver.run()
        await client.close()
    level = make_level(driver, driver._settings)
    assert level.counts.errors == {"client_limit": 3}
    assert "this client had no socket for 3 requests ([Errno 24] Too many open" in no_verdict(level, driver)
    assert "3 requests were not sent, as this client had no socket" in " ".join(
        assumptions(driver._settings, (), [level])
    )


async def test_a_limit_of_which_no_answer_has_the_figure_gives_no_verdict():
    """Answers of one token have no TPOT; that is no server's failure."""
    level, driver = await level_of(
        Plan(repeat(talk("a", output=1)), every(0.02)), rate=50, requests=3, goodput={"tpot": 5.0}
    )
    driver.behind_ns = 0
    assert no_verdict(level, driver).startswith("at 50/s no answer has a TPOT: it needs two tokens")


async def test_requests_for_several_answers_mean_as_many_tokens():
    """Each is asked for its length; the server counts those of all of them."""
    async with load_target() as fake:
        driver, client = driver_for(
            fake, Plan(iter([talk("a", output=4)]), every(0.02)), rate=50, body={"n": 3}
        )
        await driver.run()
        await client.close()
        asked = json.loads(fake.requests[0].body)
    assert (asked["max_tokens"], driver.samples[0].meant_output) == (4, 12)
    told = " ".join(assumptions(driver._settings, (), []))
    assert "Each request asks for 3 answers: output tokens are of all together" in told


def test_long_prompts_are_not_all_made_before_the_first_is_sent():
    """Thousands of them would be gigabytes; the rest are made as they are needed, in their order."""
    drawn = []

    def long():
        for n in count():
            drawn.append(n)
            yield talk("x" * (AHEAD_CHARS // 4) + str(n))

    talks = _made_ahead(long(), None)
    assert drawn == [0, 1, 2, 3]
    assert [next(talks).turns[0].messages[0]["content"][-1] for _ in range(6)] == list("012345")
