"""Open and closed loops on a real socket: schedules, waits, warm-up, turns, interrupts."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import count, islice, pairwise, repeat

from stagelens.bench.arrivals import schedule
from stagelens.bench.measure import make_level
from stagelens.bench.pacer import Pacer
from stagelens.bench.plan import Plan
from stagelens.bench.settings import BenchSettings
from stagelens.bench.terminal import rates_in_words
from tests.fake_llm.server import Gate, Hang, Reset
from tests.support.load_target import CLOCK, answer, driver_for, load_target, tags_of, talk
from tracer.clock import seconds_to_ns

MS = 1_000_000


def every(gap_s: float):
    return (n * gap_s for n in count())


async def until(true) -> None:
    """Poll what other tasks change."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110  the change has no event
            await asyncio.sleep(0.005)


async def test_a_stalled_server_does_not_slow_the_arrivals():
    """All requests arrive on time while none is answered, and the wait is in their latency."""
    opened = asyncio.Event()
    async with load_target(lambda asked: answer(asked, before=[Gate(opened)])) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a b")), every(0.01)), rate=100, requests=40)
        running = asyncio.create_task(driver.run())
        await until(lambda: len(fake.requests) >= 40)
        assert driver.in_flight == 40
        assert all(not s.first_token_ns for s in driver.samples)
        opened_ns = CLOCK.mono_ns()
        opened.set()
        await asyncio.wait_for(running, 20)
        await client.close()
    intended = [s.intended_ns for s in driver.samples]
    assert [b - a for a, b in pairwise(intended)] == [10 * MS] * 39
    for one in driver.samples:
        assert one.error == ""
        assert one.sent_ns < opened_ns
        assert one.ttft_ns >= opened_ns - one.intended_ns
    assert driver.samples[0].ttft_ns - driver.samples[-1].ttft_ns > 300 * MS


async def test_a_server_that_takes_one_at_a_time_shows_the_growing_wait():
    """Sent faster than answered: the k-th waits for the k before it, from its intended time on."""
    turn = asyncio.Lock()

    async def pass_on(gate: asyncio.Event) -> None:
        async with turn:
            await asyncio.sleep(0.03)
            gate.set()

    tasks = []

    def script(asked):
        gate = asyncio.Event()
        tasks.append(asyncio.create_task(pass_on(gate)))
        return answer(asked, before=[Gate(gate)])

    async with load_target(script) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), every(0.005)), rate=200, requests=20)
        await driver.run()
        await client.close()
    begun_ns = driver.samples[0].intended_ns
    assert [one.intended_ns - begun_ns for one in driver.samples] == [5 * MS * n for n in range(20)]
    answered = sorted(one.first_token_ns for one in driver.samples)  # whoever came first to the server
    for place, at_ns in enumerate(answered):
        assert at_ns - begun_ns >= 30 * MS * (place + 1) - MS
    level = make_level(driver, driver._settings)
    assert level.figure("ttft").p99_ns > 400 * MS
    assert level.in_flight_peak > 10


async def test_time_before_the_send_is_in_the_latency_from_the_intended_time():
    """Nobody accepts at first: both latencies are given, and differ by the wait to send."""
    async with load_target() as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), every(0.01)), rate=100, requests=1)
        held = asyncio.Event()
        connect = client._connect

        async def slow(sample):
            await held.wait()
            return await connect(sample)

        client._connect = slow
        running = asyncio.create_task(driver.run())
        await until(lambda: driver.samples)
        await asyncio.sleep(0.1)
        held.set()
        await running
        await client.close()
    [one] = driver.samples
    assert one.late_ns >= 90 * MS
    assert one.ttft_ns - one.ttft_sent_ns == one.late_ns == one.e2e_ns - one.e2e_sent_ns


async def test_a_closed_loop_never_has_more_than_its_concurrency():
    """Three at once, and as many requests as were asked for."""
    async with load_target(lambda asked: answer(asked, ttft_s=0.01)) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), None), concurrency=3, requests=20)
        await driver.run()
        await client.close()
    assert (driver.peak, len(driver.samples), fake.connections) == (3, 20, 3)
    level = make_level(driver, driver._settings)
    assert (level.counts.ok, level.counts.warmup) == (20, 0)


async def test_warm_up_requests_are_sent_and_not_measured():
    """They carry a run of their own, and are in no figure."""
    async with load_target() as fake:
        driver, client = driver_for(
            fake, Plan(repeat(talk("a")), every(0.004)), rate=250, requests=10, warmup_requests=5,
            tags={"team": "x"},
        )  # fmt: skip
        await driver.run()
        await client.close()
    level = make_level(driver, driver._settings)
    assert (level.counts.warmup, level.counts.sent, level.figure("ttft").n) == (5, 10, 10)
    runs = [tags_of(asked)["run"] for asked in fake.requests]
    assert sorted(runs) == ["r"] * 10 + ["r.warmup"] * 5
    assert tags_of(fake.requests[0]) == {
        "run": "r.warmup", "bench": "r.warmup", "level": "level.warmup", "team": "x"
    }  # fmt: skip
    assert tags_of(fake.requests[-1]) == {"run": "r", "bench": "r", "level": "level", "team": "x"}


async def test_a_level_ends_after_its_time():
    """Warm-up and duration together bound the schedule; what is in flight is waited for."""
    async with load_target() as fake:
        driver, client = driver_for(
            fake, Plan(repeat(talk("a")), every(0.02)), rate=50, duration_s=0.3, warmup_s=0.1
        )
        await driver.run()
        await client.close()
    assert [s.measured for s in driver.samples] == [False] * 5 + [True] * 15
    assert all(s.error == "" for s in driver.samples)


async def test_turns_follow_each_other_with_the_real_answers_between():
    """The second request holds the first prompt, the server's answer and the next prompt."""
    async with load_target() as fake:
        driver, client = driver_for(
            fake, Plan(iter([talk("one two", "three", output=2)]), iter([0.0])), rate=1, turns="2",
            think_s=0.05,
        )  # fmt: skip
        await driver.run()
        await client.close()
    first, second = (json.loads(asked.body)["messages"] for asked in fake.requests)
    assert second == [*first, {"role": "assistant", "content": "t0 t1 "},
                      {"role": "user", "content": "three"}]  # fmt: skip
    one, two = driver.samples
    assert two.intended_ns == one.end_ns + 50 * MS
    assert (one.turn, two.turn, one.conversation == two.conversation) == (0, 1, True)


async def test_an_interrupt_keeps_what_there_is():
    """Answered requests stay in the figures; those in flight are counted as interrupted."""
    never = asyncio.Event()

    def script(asked):
        return answer(asked, before=[] if len(fake.requests) <= 5 else [Gate(never)])

    async with load_target(script) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), every(0.01)), rate=100)
        running = asyncio.create_task(driver.run())
        await until(lambda: driver.in_flight >= 3)
        driver.stop()
        await asyncio.wait_for(running, 10)
        await client.close()
    level = make_level(driver, driver._settings)
    assert driver.interrupted
    assert level.counts.ok == 5
    assert level.counts.interrupted >= 3
    assert level.counts.failed == 0
    assert level.figure("e2e").n == 5


async def test_failed_requests_are_counted_and_have_no_latency():
    """Each kind of failure by its name; percentiles are of answered ones, with the count beside."""
    async with load_target(
        lambda asked: answer(asked, before=[Reset()] if len(fake.requests) % 2 else [])
    ) as fake:
        driver, client = driver_for(fake, Plan(repeat(talk("a")), None), concurrency=1, requests=10)
        await driver.run()
        await client.close()
    level = make_level(driver, driver._settings)
    assert level.counts.errors == {"connection": 5}
    assert (level.figure("e2e").n, level.figure("e2e").no_data) == (5, 5)


async def test_the_pacer_wakes_at_its_instant_and_not_before():
    """Instants that are past return at once."""
    with Pacer(CLOCK) as pacer:
        begin = CLOCK.mono_ns()
        for n in range(1, 20):
            await pacer.until(begin + n * MS)
            assert CLOCK.mono_ns() >= begin + n * MS
        await asyncio.wait_for(pacer.until(begin), 5)


async def test_requests_go_out_when_the_schedule_says():
    """Poisson arrivals: none leaves early, and each was meant when the schedule says."""
    async with load_target() as fake:
        times = list(islice(schedule("poisson", 100, 1, random.Random(5)), 60))
        driver, client = driver_for(fake, Plan(repeat(talk("a")), iter(times)), rate=100)
        await driver.run()
        await client.close()
    begin = driver.samples[0].intended_ns
    assert [s.intended_ns - begin for s in driver.samples] == [seconds_to_ns(at) for at in times]
    assert min(s.late_ns for s in driver.samples) >= 0


async def test_of_an_interrupted_warm_up_nothing_was_measured():
    """What was in flight then is no peak of the measured time."""
    async with load_target(lambda asked: answer(asked, before=[Hang()])) as fake:
        plan = Plan(repeat(talk("a b")), iter([*[0.0] * 5, 50.0]))
        driver, client = driver_for(fake, plan, rate=10, warmup_s=60)
        running = asyncio.create_task(driver.run())
        await until(lambda: len(fake.requests) >= 5)
        driver.stop()
        await asyncio.wait_for(running, 20)
        await client.close()
    level = make_level(driver, BenchSettings(url=fake.url, rate=[10]))
    assert (level.counts.sent, level.in_flight_peak) == (0, 0)
    assert level.counts.warmup >= 5
    assert rates_in_words(level) == ["nothing was measured"]
