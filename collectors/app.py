"""The collector, put together: receiver, spool or bounded queue, writer, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from collectors.counts import Counts
from collectors.gauges.loop import build_gauges
from collectors.normalise.normaliser import Normaliser
from collectors.normalise.tables import Tables
from collectors.receive.access import Tokens
from collectors.receive.http import OtlpHttp, response_of
from collectors.receive.signals import OF_NAME, Signal
from collectors.settings import CollectorSettings
from collectors.spool.spool import Spool
from collectors.store.client import Store
from collectors.store.rollups import RollupCheck
from collectors.write.plain import PlainSpans
from collectors.write.spooled import SpooledWriter
from collectors.write.writer import Writer
from tracer.clock import Clock


class Writing(Protocol):
    """What runs between receiver and store."""

    def start(self) -> None: ...

    def stop(self, deadline_s: float) -> None: ...


class Beside(Protocol):
    """What runs beside the receiver."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Receiver:
    """``app`` is the OTLP/HTTP application; ``start`` before serving it, ``stop`` after."""

    def __init__(
        self,
        app: OtlpHttp,
        writer: Writing,
        counts: Counts,
        normaliser: Normaliser,
        beside: Sequence[Beside] = (),
    ) -> None:
        self.app = app
        self.normaliser = normaliser
        self._writer = writer
        self._counts = counts
        self._beside = beside

    async def start(self) -> None:
        self._writer.start()
        self.normaliser.start()
        for one in self._beside:
            one.start()

    async def stop(self, deadline_s: float) -> None:
        """Write what waits, within the deadline; the rest stays in the spool, or is counted."""
        for one in self._beside:
            await asyncio.to_thread(one.stop)
        self.normaliser.stop(0)  # the store is the writer's now
        await asyncio.to_thread(self._writer.stop, deadline_s)
        await asyncio.to_thread(self.normaliser.stop, 1)

    def counts(self) -> dict[str, dict[str, object]]:
        """By signal: received, written, refused by reason, set_aside, in_flight."""
        return self._counts.snapshot()


def build_receiver(
    settings: CollectorSettings,
    store: Store,
    clock: Clock,
    spool_folder: Path | None = None,
    tokens: Tokens | None = None,
) -> Receiver:
    """OTLP/HTTP → checked rows → spool → one insert a table and second → ``store``.

    Without ``spool_folder`` the queue is in memory, and what waits ends with the process.
    ``tokens``: who may send; everybody without them.

    Raises:
        StoreOwned, StoreUnwritable: the spool folder cannot be used.
    """
    normaliser = Normaliser(Tables(store), clock, settings.normalise)
    if spool_folder is None:
        counts = Counts()
        queue = Writer(store, settings, counts, clock)
        app = OtlpHttp(settings, queue, counts, clock, None, tokens)
        return Receiver(app, queue, counts, normaliser)
    spool = Spool(spool_folder, settings.spool.max_bytes, settings.spool.fsync)
    counts = Counts()
    counts.load(spool.state.counts.snapshot())
    plain = _plain(store, spool_folder, clock)  # a plan of an earlier process may need it
    writer = SpooledWriter(store, settings, counts, clock, spool, plain=plain)
    known = {
        bytes.fromhex(digest): response_of(_signal_of(refused), refused["refused"])
        for digest, refused in spool.state.recent.items()
    }
    beside: list[Beside] = [build_gauges(settings.gauges, writer, clock)]
    if settings.rollup_check_s is not None and settings.store.cluster is None:
        beside.append(RollupCheck(store, clock, settings.rollup_check_s))
    told = plain if settings.plain_from_spans else None
    app = OtlpHttp(settings, writer, counts, clock, known, tokens, plain=told)
    return Receiver(app, writer, counts, normaliser, beside)


def _plain(store: Store, folder: Path, clock: Clock) -> PlainSpans | None:
    try:
        return PlainSpans(store, folder.resolve(), clock)
    except ValueError:  # a name that no statement can hold: spans go as rows
        return None


def _signal_of(told: dict[str, object]) -> Signal:
    return OF_NAME[str(told["signal"])]
