"""From the spool to the store: planned on disk first, each batch exactly once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from collectors.counts import OF_TABLE, Counts
from collectors.receive.rows import Batch
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from collectors.spool.spool import Spool, SpoolFull
from collectors.spool.state import NEVER, Plan
from collectors.write.attempts import Attempts
from collectors.write.carry import Carrier, PlainStore
from collectors.write.writer import RowStore
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
PLAN_BYTES = 64 << 20
PLAN_BATCHES = 4
"""A plan is several batches of rows, or one insert of as many plain spans."""


class SpooledWriter:
    """``offer`` puts a body on disk; one thread writes what is there to the store, two when much is.

    Batches are retried until the store takes them, also by the next process; a batch
    that it never will take is halved, and what is left of it is set aside in a file.
    With ``plain``, spans whose batch says so are written from their bodies.
    """

    def __init__(
        self,
        store: RowStore,
        settings: CollectorSettings,
        counts: Counts,
        clock: Clock,
        spool: Spool,
        first_pause_s: float = 0.2,
        plain: PlainStore | None = None,
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._spool = spool
        self._lock = threading.Lock()
        self._made_bytes = 0
        self._wake = threading.Event()
        self._attempts = Attempts(clock, first_pause_s)
        self._carrier = Carrier(store, spool, counts, self._attempts, plain)
        self._two_at_once = plain is not None and settings.plain_from_spans is not None
        self._thread: threading.Thread | None = None

    @property
    def failing(self) -> bool:
        return self._attempts.failing

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stagelens-write", daemon=True)
            self._thread.start()

    def offer(self, batch: Batch, size: int, origin: Origin | None = None) -> bool:
        """Keep a body; ``False`` when the spool is full or the writer stopped."""
        assert origin is not None
        refused = dict(origin.refused)
        if not batch.kept:
            self._spool.note_refused(origin.signal, refused)
            return True
        kept = {"spans": batch.plain} if batch.plain else {}
        for table, rows in batch.rows.items():
            kept[OF_TABLE[table]] = kept.get(OF_TABLE[table], 0) + len(rows)
        with self._lock:
            if self._attempts.halt.is_set():
                return False
            if self._spool.knows(origin.digest):  # a copy was quicker
                return True
            try:
                entry = self._spool.append(
                    origin.signal, origin.body, origin.window, kept, refused, origin.digest,
                    plain=bool(batch.plain),
                )  # fmt: skip
            except SpoolFull as problem:
                self._attempts.warn("a body was sent back: %s", problem)
                return False
            for signal, n in kept.items():
                self._counts.receive(signal, n)
            if not batch.plain and self._made_bytes + size <= self._settings.queue_bytes:
                self._carrier.made[entry.number] = batch, size
                self._made_bytes += size
        return True

    def stop(self, deadline_s: float) -> None:
        """Write what waits within the deadline; the rest stays in the spool, in flight."""
        with self._lock:
            self._attempts.end_within(deadline_s)
        self._wake.set()
        if self._thread is not None:
            self._thread.join(deadline_s + 1)
        self._spool.close()

    # -- the writing thread ----------------------------------------------------

    def _run(self) -> None:
        while not self._attempts.halt.is_set():
            self._flush()
            self._wake.wait(self._settings.batch_interval_s)
            self._wake.clear()
        self._flush()

    def _flush(self) -> None:
        """Carry out what waits, then whole batches for as long as there are; the rest waits on.

        What goes wrong waits for the next interval, too.
        """
        self._safely(self._write_all)

    def _write_all(self) -> bool:
        self._spool.sync()
        if not all(self._carry_out(plan) for plan in self._spool.plans()):
            return False
        known = self._spool.newest()
        while (new := self._plan(known)) is not None:
            beside = self._plan(0) if self._two_at_once else None
            done = self._carry_out(new) if beside is None else self._carry_out_both(new, beside)
            if not done:
                return False
            self._spool.sync()
        return True

    def _safely(self, write: Callable[[], bool]) -> bool:
        """The thread must outlive any one batch; all of it is still in the spool."""
        try:
            return write()
        except OSError as problem:
            self._attempts.warn("the spool cannot be written: %s", problem.strerror)
        except Exception:
            log.exception("writing was interrupted")
        return False

    def _carry_out_both(self, one: Plan, other: Plan) -> bool:
        """At the same time: an engine reads and sorts one insert in one thread, whatever its size."""
        told: list[bool] = []
        beside = threading.Thread(
            target=lambda: told.append(self._safely(lambda: self._carry_out(other))),
            name="stagelens-write-beside", daemon=True,
        )  # fmt: skip
        beside.start()
        try:
            done = self._carry_out(one)
        finally:
            beside.join()
        return done and told == [True]

    def _plan(self, known: int) -> Plan | None:
        rows = self._settings.batch_rows
        with self._lock:  # what is planned has been counted as received
            plain = self._settings.plain_from_spans or NEVER
            return self._spool.plan(rows * PLAN_BATCHES, PLAN_BYTES, rows, known, plain)

    def _carry_out(self, plan: Plan) -> bool:
        if not self._carrier.carry_out(plan):
            return False
        with self._lock:
            for number in range(plan.first, plan.last + 1):
                self._made_bytes -= self._carrier.made.pop(number, (None, 0))[1]
        return True
