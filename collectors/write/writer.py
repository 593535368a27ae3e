"""Batches to the store: one insert a table and flush, retried for as long as it makes sense."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from collectors.counts import OF_TABLE, Counts
from collectors.receive.rows import COLUMNS, Batch, Row
from collectors.settings import CollectorSettings
from collectors.store.errors import StoreBusy, StoreError
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
WARN_EVERY_NS = 30 * 10**9


class RowStore(Protocol):
    """What the writer needs of a store."""

    def insert(
        self, table: str, columns: tuple[str, ...], rows: list[Row], token: str
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    batch: Batch
    size: int


class Writer:
    """A bounded queue and one thread that writes.

    ``offer`` never blocks. ``stop(deadline_s)`` writes what waits within the deadline
    and counts the rest as refused; it is safe before ``start`` and twice.
    """

    def __init__(
        self, store: RowStore, settings: CollectorSettings, counts: Counts, clock: Clock
    ) -> None:
        self._store = store
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._queued_rows = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._deadline_mono_ns: int | None = None
        self._thread: threading.Thread | None = None
        self._warn_due_mono_ns = 0
        self.failing = False

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stagelens-write", daemon=True)
            self._thread.start()

    def offer(self, batch: Batch, size: int) -> bool:
        """Take a batch of ``size`` body bytes; ``False`` when full, failing or stopped."""
        with self._lock:
            full = self._queued_bytes + size > self._settings.queue_bytes
            if self._stopping or self.failing or full:
                return False
            for table, rows in batch.rows.items():
                self._counts.receive(OF_TABLE[table], len(rows))
            self._queue.append(_Waiting(batch, size))
            self._queued_bytes += size
            self._queued_rows += batch.kept
            if self._queued_rows >= self._settings.batch_rows:
                self._wake.set()
        return True

    def stop(self, deadline_s: float) -> None:
        with self._lock:
            self._stopping = True
        self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
        self._wake.set()
        if self._thread is not None:
            self._thread.join(deadline_s + 1)
        for waiting in self._take():
            self._refuse_all(waiting.batch, "shutdown")

    # -- the writing thread ----------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._settings.batch_interval_s)
            self._wake.clear()
            self._flush()
        self._flush()

    def _take(self) -> list[_Waiting]:
        with self._lock:
            taken = list(self._queue)
            self._queue.clear()
            self._queued_rows = 0
        return taken

    def _flush(self) -> None:
        waiting = self._take()
        if not waiting:
            return
        tables: dict[str, list[Row]] = {}
        for one in waiting:
            for table, rows in one.batch.rows.items():
                tables.setdefault(table, []).extend(rows)
        for table, rows in tables.items():
            for at in range(0, len(rows), self._settings.batch_rows):
                self._write(table, rows[at : at + self._settings.batch_rows])
        with self._lock:
            self._queued_bytes -= sum(one.size for one in waiting)

    def _write(self, table: str, rows: list[Row]) -> None:
        """Insert until it is in, is refused for good, or its time is up."""
        token = uuid.uuid4().hex
        give_up = self._clock.mono_ns() + int(self._settings.retry_deadline_s * 1e9)
        pause_s = 0.2
        while True:
            try:
                self._store.insert(table, COLUMNS[table], rows, token)
            except StoreBusy as problem:
                self.failing = True
                self._warn("the store does not take %s yet: %s", table, problem)
                wait_s = random.uniform(0, pause_s)  # noqa: S311  jitter
                pause_s = min(pause_s * 2, 10.0)
                ends = min(give_up, self._deadline_mono_ns or give_up)
                if self._clock.mono_ns() + int(wait_s * 1e9) >= ends:
                    self._counts.refuse(OF_TABLE[table], len(rows), "store_unavailable")
                    self.failing = False
                    return
                self._wake.wait(wait_s)
            except StoreError as problem:
                self._salvage(table, rows, problem)
                return
            else:
                self.failing = False
                self._counts.write(OF_TABLE[table], len(rows))
                return

    def _salvage(self, table: str, rows: list[Row], problem: StoreError) -> None:
        """A batch that can never be written: halve it until only the bad rows are refused."""
        if len(rows) == 1:
            self._counts.refuse(OF_TABLE[table], 1, "store_refused")
            self._warn("a row of %s was refused: %s", table, problem)
            return
        half = len(rows) // 2
        self._write(table, rows[:half])
        self._write(table, rows[half:])

    def _refuse_all(self, batch: Batch, reason: str) -> None:
        for table, rows in batch.rows.items():
            self._counts.refuse(OF_TABLE[table], len(rows), reason)

    def _warn(self, text: str, *values: object) -> None:
        now = self._clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + WARN_EVERY_NS
            log.error(text, *values)
