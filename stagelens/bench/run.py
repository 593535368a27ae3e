"""A whole run: prepare, send every level, measure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from stagelens.bench.datafile import Item
from stagelens.bench.drive import Driver
from stagelens.bench.interrupt import Interrupts
from stagelens.bench.measure import (
    is_behind,
    is_hopeless,
    make_level,
    no_verdict,
    point,
    unanswered,
)
from stagelens.bench.models import Level, Search
from stagelens.bench.plan import Plan, Step, again, make_plan, rate_step, steps, told_rate
from stagelens.bench.probe import Prepared, prepare
from stagelens.bench.replay import Recorded, make_replay
from stagelens.bench.sample import Sample
from stagelens.bench.search import find_highest
from stagelens.bench.settings import BenchSettings
from stagelens.bench.wire import Client, Target
from tracer.clock import Anchor, SystemClock

T = TypeVar("T")
SHOW_EVERY_S = 0.25


@dataclass
class Ran:
    """What a run left: each level with its samples."""

    anchor: Anchor
    prepared: Prepared | None = None
    levels: list[tuple[Level, list[Sample]]] = field(default_factory=list)
    search: Search | None = None
    interrupted: bool = False


class Runner:
    """Runs the levels one after the other; ``show`` is called now and then with the driver."""

    def __init__(
        self, settings: BenchSettings, name: str, key: str | None, clock: SystemClock,
        items: Sequence[Item] = (), recorded: Recorded | None = None,
        show: Callable[[Driver], None] | None = None, interrupts: Interrupts | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._name, self._key, self._clock = settings, name, key, clock
        self._items, self._recorded, self._show = items, recorded, show
        self._interrupts = interrupts or Interrupts()
        self._driver: Driver | None = None
        self.ran = Ran(Anchor.take(clock))

    async def run(self) -> Ran:
        """All levels, or those until an interrupt.

        Raises:
            UserError: the server does not answer a first request.
            CancelledError: interrupted before anything was sent.
        """
        settings = self._settings
        client = Client(Target.parse(settings.url), self._clock, settings.timeout_s, settings.ca)
        loop, whole = asyncio.get_running_loop(), asyncio.current_task()
        assert whole is not None
        self._interrupts.then(partial(loop.call_soon_threadsafe, self._stop, whole))
        try:
            self.ran.prepared = await prepare(client, self._settings, self._key)
            if self._settings.find_max:
                await self._find(client)
            else:
                for step in steps(self._settings, self._name):
                    if not self.ran.interrupted:
                        await self._level(client, step)
        finally:
            self._interrupts.then(self._interrupts.keep)
            await client.close()
        return self.ran

    def _stop(self, whole: asyncio.Task[Any]) -> None:
        """The first interrupt ends the sending; a second one the wait for what that leaves."""
        if self._driver is None or self.ran.interrupted:
            whole.cancel()
            return
        self.ran.interrupted = True
        self._driver.stop()

    async def _level(self, client: Client, step: Step) -> Level:
        prepared = self.ran.prepared
        assert prepared is not None
        self._driver = driver = Driver(
            client, prepared.speech, self._settings, step, self._plan(step, prepared), self._clock,
            self._name,
        )  # fmt: skip
        showing = asyncio.create_task(self._showing(driver))
        try:
            await driver.run()
        except asyncio.CancelledError:
            if not self.ran.interrupted:
                raise
            driver.abandon()
        finally:
            showing.cancel()
        level = make_level(driver, self._settings)
        self.ran.levels.append((level, driver.samples))
        return level

    def _plan(self, step: Step, prepared: Prepared) -> Plan:
        if self._recorded is not None:
            return make_replay(
                self._recorded, prepared.scale, self._settings.seed, self._settings.speed
            )
        return make_plan(self._settings, step, prepared.scale, self._items)

    async def _showing(self, driver: Driver) -> None:
        while self._show is not None:
            self._show(driver)
            await asyncio.sleep(SHOW_EVERY_S)

    async def _find(self, client: Client) -> None:
        settings = self._settings
        doubts: list[str] = []

        async def meets(rate: float) -> bool | None:
            if self.ran.interrupted or doubts:
                return None
            level = await self._tried(client, rate)
            if self.ran.interrupted or self._driver is None:
                return None
            if doubt := no_verdict(level, self._driver) or unanswered(list(self._by_rate().values())):
                doubts.append(doubt)
                return None
            met = any(one.meets_limits for one, _ in self.ran.levels)
            if not met and is_hopeless(level, self._driver):
                doubts.append(
                    f"at {told_rate(rate)}/s requests came one at a time and missed the limits all the same"
                )
            return level.meets_limits

        found = await find_highest((*settings.rate, 1.0)[0], settings.precision, meets)
        points = [point(one) for rate, one in self._by_rate().items() if rate in found.tried]
        self.ran.search = Search(
            limits_s=settings.goodput, percentile=settings.percentile, best_rate=found.best,
            first_failed=found.failed, curve=tuple(sorted(points, key=lambda p: p.rate)),
            ended_by="".join(doubts),
        )  # fmt: skip

    def _by_rate(self) -> dict[float, Level]:
        """In the order tried; of a rate that was tried again the later one."""
        return {one.rate: one for one, _ in self.ran.levels if one.rate is not None}

    async def _tried(self, client: Client, rate: float) -> Level:
        """A level of ``rate``; another one where this client fell behind, as a busy machine may once."""
        level = await self._level(client, step := rate_step(rate, None, self._name))
        if self.ran.interrupted or self._driver is None or not is_behind(self._driver):
            return level
        return await self._level(client, again(step))


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is, with as many sockets as the system lets us have."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)  # type: ignore[no-any-return]
