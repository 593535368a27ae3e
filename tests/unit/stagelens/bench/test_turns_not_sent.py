"""Turns that were planned and not sent, and loops that go on at once: counted and said."""

from __future__ import annotations

from itertools import count, repeat

from stagelens.bench.assumptions import assumptions
from stagelens.bench.measure import make_level
from stagelens.bench.plan import Plan
from tests.fake_llm.server import Reply
from tests.support.load_target import answer, driver_for, load_target, talk


def told(driver) -> str:
    return " ".join(assumptions(driver._settings, (), [make_level(driver, driver._settings)]))


async def test_turns_behind_a_failed_one_are_said():
    """The second request of four turns fails: two were never sent."""
    seen = count()

    def script(asked):
        return Reply([b"no"], status=500, framing="length") if next(seen) == 1 else answer(asked)

    async with load_target(script) as fake:
        plan = Plan(iter([talk("a", "b", "c", "d")]), None)
        driver, client = driver_for(fake, plan, concurrency=1, requests=1, turns="4")
        await driver.run()
        await client.close()
    assert len(driver.samples) == 2
    assert driver.turns_failed == 2
    assert "2 planned turns not sent, as the one before in the same conversation failed" in told(driver)


async def test_no_turn_begins_after_the_measured_time():
    """Clients that think for longer than the level lasts are not waited for."""
    async with load_target() as fake:
        plan = Plan(repeat(talk("a", "b", "c")), None)
        driver, client = driver_for(
            fake, plan, concurrency=2, duration_s=0.2, turns="3", think_s=60.0
        )
        await driver.run()
        await client.close()
    assert {one.turn for one in driver.samples} == {0}
    assert driver.turns_late == 2 * len(driver.samples)
    assert f"{driver.turns_late:,} planned turns not sent, as they would have begun after" in told(driver)


async def test_a_closed_loop_on_a_server_that_refuses_all_says_what_its_count_is():
    """Thousands a second are no load that anybody meant."""
    async with load_target(lambda _: Reply([b"no"], status=500, framing="length")) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), None), concurrency=1, requests=5)
        await driver.run()
        await client.close()
    assert "5 of 5 requests failed; a closed loop sends the next one at once" in told(driver)


async def test_a_level_of_few_requests_says_what_its_rates_are():
    """Two a second done at a rate of a hundredth is no news of the server."""
    async with load_target() as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), iter([0.0, 0.01])), rate=0.01)
        await driver.run()
        await client.close()
    assert "2 requests measured: what was sent and answered a second is of a few gaps" in told(driver)
