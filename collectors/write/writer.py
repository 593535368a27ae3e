"""Batches to the store: one insert a table and flush, retried for as long as it makes sense."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from collectors.counts import OF_TABLE, Counts
from collectors.receive.rows import Batch, Row
from collectors.receive.signals import COLUMNS
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from collectors.store.errors import StoreBusy, StoreTooLarge
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
WARN_EVERY_NS = 30 * 10**9
MOST_PAUSE_S = 10.0
MOST_REFUSALS = 256
"""Refusals after which a batch of which nothing was taken yet counts as bad as a whole."""


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
        self,
        store: RowStore,
        settings: CollectorSettings,
        counts: Counts,
        clock: Clock,
        first_pause_s: float = 0.2,
    ) -> None:
        self._store = store
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._queued_rows = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._halt = threading.Event()
        self._deadline_mono_ns: int | None = None
        self._thread: threading.Thread | None = None
        self._warn_due_mono_ns = 0
        self.failing = False
        self._doubtful = False

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stagelens-write", daemon=True)
            self._thread.start()

    def offer(self, batch: Batch, size: int, _: Origin | None = None) -> bool:
        """Take a batch of ``size`` body bytes; ``False`` when full, failing or stopped.

        An empty queue takes a batch of any size. After the store was given up, one batch
        at a time is taken until one is in: the others are told to come again, not lost.
        """
        if not batch.kept:
            return True
        with self._lock:
            limit = 0 if self._doubtful else self._settings.queue_bytes
            full = self._queued_bytes > 0 and self._queued_bytes + size > limit
            if self._halt.is_set() or self.failing or full:
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
            if self._deadline_mono_ns is None:
                self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
            self._halt.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(deadline_s + 1)
        for waiting in self._take():
            self._refuse_all(waiting.batch, "shutdown")

    # -- the writing thread ----------------------------------------------------

    def _run(self) -> None:
        while not self._halt.is_set():
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
        """Insert; of rows that never can be written only the bad ones are refused, by halving."""
        give_up = self._clock.mono_ns() + int(self._settings.retry_deadline_s * 1e9)
        parts, refusals, taken = [rows], 0, False
        while parts:
            part = parts.pop()
            answer = self._insert(table, part, give_up)
            if answer is None:
                taken = True
                self._counts.write(OF_TABLE[table], len(part))
            elif isinstance(answer, str):
                self._counts.refuse(OF_TABLE[table], len(part), answer)
            elif len(part) == 1 or (refusals >= MOST_REFUSALS and not taken):
                self._counts.refuse(OF_TABLE[table], len(part), "store_refused")
                self._warn("%d row(s) of %s refused: %s", len(part), table, answer)
            else:
                refusals += 1
                half = len(part) // 2
                parts += [part[half:], part[:half]]

    def _insert(self, table: str, rows: list[Row], give_up: int) -> str | Exception | None:
        """None once it is in, the reason when its time is up, the problem when it never can be."""
        token = uuid.uuid4().hex
        pause_s = self._first_pause_s
        while self._left_ns(self._deadline_mono_ns) > 0:
            try:
                self._store.insert(table, COLUMNS[table], rows, token)
            except StoreTooLarge as problem:
                if len(rows) > 1:
                    self.failing = self._doubtful = False
                    return problem
                self.failing = True
                self._warn("the store does not take %s yet: %s", table, problem)
            except StoreBusy as problem:
                self.failing = True
                self._warn("the store does not take %s yet: %s", table, problem)
            except Exception as problem:  # noqa: BLE001  the thread must outlive any one batch
                self.failing = self._doubtful = False
                return problem
            else:
                self.failing = self._doubtful = False
                return None
            left = min(self._left_ns(give_up), self._left_ns(self._deadline_mono_ns))
            if left <= 0:
                break
            self._pause(min(random.uniform(0, pause_s), left / 1e9))  # noqa: S311  jitter
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
        if not self.failing:
            return "shutdown"
        self._doubtful = True
        self.failing = False
        return "store_unavailable"

    def _left_ns(self, deadline_mono_ns: int | None) -> int:
        return 1 << 62 if deadline_mono_ns is None else deadline_mono_ns - self._clock.mono_ns()

    def _pause(self, seconds: float) -> None:
        """Wait before the next try; being stopped ends it, but later waits are still waited."""
        if self._halt.is_set():
            time.sleep(min(seconds, self._first_pause_s))
        else:
            self._halt.wait(seconds)

    def _refuse_all(self, batch: Batch, reason: str) -> None:
        for table, rows in batch.rows.items():
            self._counts.refuse(OF_TABLE[table], len(rows), reason)

    def _warn(self, text: str, *values: object) -> None:
        now = self._clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + WARN_EVERY_NS
            log.error(text, *values)
