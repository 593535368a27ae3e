"""The collector, put together: receiver, bounded queue, writer, counts."""

from __future__ import annotations

import asyncio

from collectors.counts import Counts
from collectors.receive.http import OtlpHttp
from collectors.settings import CollectorSettings
from collectors.store.client import Store
from collectors.write.writer import Writer
from tracer.clock import Clock


class Receiver:
    """``app`` is the OTLP/HTTP application; ``start`` before serving it, ``stop`` after."""

    def __init__(self, app: OtlpHttp, writer: Writer, counts: Counts) -> None:
        self.app = app
        self._writer = writer
        self._counts = counts

    async def start(self) -> None:
        self._writer.start()

    async def stop(self, deadline_s: float) -> None:
        """Write what waits, within the deadline; what could not be written is counted."""
        await asyncio.to_thread(self._writer.stop, deadline_s)

    def counts(self) -> dict[str, dict[str, object]]:
        """By signal: received, written, refused by reason, in_flight."""
        return self._counts.snapshot()


def build_receiver(settings: CollectorSettings, store: Store, clock: Clock) -> Receiver:
    """OTLP/HTTP → checked rows → bounded queue → one insert a table and second → ``store``."""
    counts = Counts()
    writer = Writer(store, settings, counts, clock)
    return Receiver(OtlpHttp(settings, writer, counts, clock), writer, counts)
