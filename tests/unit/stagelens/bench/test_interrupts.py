"""Ctrl-C, once and again, at each moment of a run."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from stagelens.bench.drive import Driver
from stagelens.bench.interrupt import Interrupts
from stagelens.bench.run import Runner
from stagelens.bench.settings import BenchSettings
from tests.fake_llm.server import Hang
from tests.support.clock import FakeClock
from tests.support.load_target import CLOCK, answer, hanging_target, load_target
from tests.unit.stagelens.bench.test_results import QUICK, bench


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_presses_within_half_a_second_are_one():
    """A key that bounces, or a shell and its child both told, do not end everything."""
    clock, done = FakeClock(), []
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(clock) as interrupts:
        interrupts.then(lambda: done.append(clock.mono))
        for _ in range(4):
            press()
            clock.advance(0.2)
    assert [at - done[0] for at in done] == [0, 600_000_000]
    assert signal.getsignal(signal.SIGINT) is before


def test_while_a_result_is_told_one_is_let_pass_and_the_next_leaves():
    """Who insists gets out, as where the output goes to somebody who does not read."""
    clock = FakeClock()
    with Interrupts(clock) as interrupts:
        interrupts.then(interrupts.keep)
        press()
        clock.advance(1)
        with pytest.raises(KeyboardInterrupt):
            press()


def test_before_anything_is_measured_one_leaves_at_once():
    """There is nothing to tell."""
    with Interrupts(FakeClock()), pytest.raises(KeyboardInterrupt):
        press()


async def stuck(monkeypatch: pytest.MonkeyPatch, **settings: object) -> Runner:
    """Stopped a second time, as the first time did not get it to an end."""
    reached = asyncio.Event()

    stop = Driver.stop

    def only_the_second(driver: Driver) -> None:
        if driver.interrupted:
            stop(driver)
        driver.interrupted = True

    monkeypatch.setattr(Driver, "stop", only_the_second)
    async with hanging_target(reached) as fake:
        made = BenchSettings(url=fake.url, warmup_s=0, input="20", output="3", **settings)
        runner = Runner(made, "r", None, CLOCK)
        running = asyncio.create_task(runner.run())
        await asyncio.wait_for(reached.wait(), 20)
        for _ in range(2):
            runner._stop(running)
        await asyncio.wait_for(running, 20)
    return runner


async def test_a_second_one_tells_what_there_is(monkeypatch):
    """The answered requests are in the figures, the others counted as interrupted."""
    runner = await stuck(monkeypatch, concurrency=[3])
    [(level, samples)] = runner.ran.levels
    assert runner.ran.interrupted
    assert level.counts.ok >= 5
    assert level.counts.interrupted >= 1
    assert level.counts.sent == level.counts.ok + level.counts.interrupted
    assert all(one.end_ns >= one.intended_ns for one in samples)


async def test_a_second_one_amid_a_search_keeps_its_curve(monkeypatch):
    """The rate that was being tried has no verdict."""
    runner = await stuck(
        monkeypatch, find_max=True, goodput={"ttft": 5}, rate=[20], precision=0.5,
        arrivals="constant", duration_s=0.2,
    )
    search = runner.ran.search
    assert search.curve[0].rate == 20
    assert all(point.meets for point in search.curve)
    assert (search.best_rate, search.first_failed) == (search.curve[-1].rate, None)
    assert len(runner.ran.levels) == len(search.curve) + 1


@pytest.mark.parametrize("form", ["json", "csv", "html", "table"])
async def test_two_within_milliseconds_end_with_what_there_is(form, tmp_path):
    """Exit code 130 and the whole result, in each form."""
    reached, out = asyncio.Event(), tmp_path / "out"

    async with hanging_target(reached) as fake:
        code, _, err = await bench(
            "--url", fake.url, "--rate", "50", "--format", form, "--out", str(out), *QUICK,
            interrupt=reached, presses=3,
        )  # fmt: skip
    text = out.read_text()
    assert (code, err) == (130, "")
    if form == "json":
        assert json.loads(text)["levels"][0]["counts"]["ok"] >= 5
    else:
        assert "interrupted" in text.lower()


async def test_one_before_the_first_answer_says_that_there_is_nothing():
    """The probe is not answered; one sentence, no traceback."""
    reached = asyncio.Event()

    def script(asked):
        reached.set()
        return answer(asked, before=[Hang()])

    async with load_target(script) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--model", "m", "--rate", "50", *QUICK, interrupt=reached
        )
    assert (code, out, err) == (130, "", "stagelens: stopped before there was anything to tell\n")


async def test_a_sigterm_ends_with_what_there_is_too():
    """As a batch system stops a job: the whole result, and exit code 143."""
    reached = asyncio.Event()
    async with hanging_target(reached) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--rate", "50", "--format", "json", *QUICK, interrupt=reached,
            sent=signal.SIGTERM,
        )  # fmt: skip
    told = json.loads(out)
    assert (code, err, told["interrupted"]) == (143, "", True)
    assert told["levels"][0]["counts"]["ok"] >= 1


def test_the_first_signal_that_is_obeyed_gives_the_exit_code():
    """A shell's Ctrl-C behind a SIGTERM changes nothing; both are as before afterwards."""
    clock = FakeClock()
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(clock) as interrupts:
        interrupts.then(interrupts.keep)
        signal.raise_signal(signal.SIGTERM)
        clock.advance(1)
        with pytest.raises(KeyboardInterrupt):
            press()
    assert interrupts.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("sent", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_key_that_is_held_down_ends_with_the_same_exit_code(sent, wanted):
    """Down to the process's last moment, in which Python has given its signals back."""
    reached = asyncio.Event()
    async with hanging_target(reached) as fake:
        code, out, _ = await bench(
            "--url", fake.url, "--rate", "50", "--format", "json", *QUICK, interrupt=reached,
            sent=sent, hold=True,
        )  # fmt: skip
    assert (code, json.loads(out)["interrupted"]) == (wanted, True)
