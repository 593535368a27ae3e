"""From the spool to the store: planned on disk first, each batch exactly once."""

from __future__ import annotations

import logging
import random
import threading
import time

from collectors.counts import OF_TABLE, Counts
from collectors.receive.rows import Batch, Row, TimeWindow
from collectors.receive.signals import COLUMNS, OF_NAME
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from collectors.spool.spool import Spool, SpoolFull
from collectors.spool.state import Entry, Plan
from collectors.store.errors import StoreBusy, StoreError, StoreRefused, StoreTooLarge
from collectors.write.aside import only_rows
from collectors.write.writer import MOST_PAUSE_S, MOST_REFUSALS, WARN_EVERY_NS, RowStore
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
PLAN_BYTES = 64 << 20
MEMORY_TRIES = 3
"""Times that one row is tried which the store lacks the memory for."""


class SpooledWriter:
    """``offer`` puts a body on disk; one thread writes what is there to the store.

    Batches are retried until the store takes them, also by the next process; a batch
    that it never will take is halved, and what is left of it is set aside in a file.
    """

    def __init__(
        self,
        store: RowStore,
        settings: CollectorSettings,
        counts: Counts,
        clock: Clock,
        spool: Spool,
        first_pause_s: float = 0.2,
    ) -> None:
        self._store = store
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._spool = spool
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()
        self._made: dict[int, tuple[Batch, int]] = {}
        self._made_bytes = 0
        self._wake = threading.Event()
        self._halt = threading.Event()
        self._deadline_mono_ns: int | None = None
        self._thread: threading.Thread | None = None
        self._warn_due_mono_ns = 0
        self.failing = False

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
        kept: dict[str, int] = {}
        for table, rows in batch.rows.items():
            kept[OF_TABLE[table]] = kept.get(OF_TABLE[table], 0) + len(rows)
        with self._lock:
            if self._halt.is_set():
                return False
            if self._spool.knows(origin.digest):  # a copy was quicker
                return True
            try:
                entry = self._spool.append(
                    origin.signal, origin.body, origin.window, kept, refused, origin.digest
                )
            except SpoolFull as problem:
                self._warn("a body was sent back: %s", problem)
                return False
            for signal, n in kept.items():
                self._counts.receive(signal, n)
            if self._made_bytes + size <= self._settings.queue_bytes:
                self._made[entry.number] = batch, size
                self._made_bytes += size
        return True

    def stop(self, deadline_s: float) -> None:
        """Write what waits within the deadline; the rest stays in the spool, in flight."""
        with self._lock:
            if self._deadline_mono_ns is None:
                self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
            self._halt.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(deadline_s + 1)
        self._spool.close()

    # -- the writing thread ----------------------------------------------------

    def _run(self) -> None:
        while not self._halt.is_set():
            self._flush()
            self._wake.wait(self._settings.batch_interval_s)
            self._wake.clear()
        self._flush()

    def _flush(self) -> None:
        """Carry out plans until nothing waits; what goes wrong waits for the next interval."""
        try:
            self._spool.sync()
            for plan in self._spool.plans():
                if not self._carry_out(plan):
                    return
            most = self._settings.batch_rows
            while (new := self._plan(most)) is not None:
                if not self._carry_out(new):
                    return
        except OSError as problem:
            self._warn("the spool cannot be written: %s", problem.strerror)
        except Exception:  # the thread must outlive any one batch; all of it is still in the spool
            log.exception("writing was interrupted")

    def _plan(self, most: int) -> Plan | None:
        with self._lock:  # what is planned has been counted as received
            return self._spool.plan(most, PLAN_BYTES, most)

    def _carry_out(self, plan: Plan) -> bool:
        """False when it was stopped before the end."""
        tables: dict[str, list[tuple[Entry, Row]]] = {}
        entries = self._spool.entries(plan)
        for entry in entries:
            batch = self._batch(entry)
            if batch is None:
                self._lost(plan, entry)
                continue
            for table, rows in batch.rows.items():
                tables.setdefault(table, []).extend((entry, row) for row in rows)
        for table, pairs in tables.items():
            for n, at in enumerate(range(0, len(pairs), plan.rows)):
                if not self._write(plan, f"{plan.id}/{table}/{n}/", table, pairs[at : at + plan.rows], [0]):
                    return False
        self._spool.end(plan)
        with self._lock:
            for entry in entries:
                self._made_bytes -= self._made.pop(entry.number, (None, 0))[1]
        return True

    def _batch(self, entry: Entry) -> Batch | None:
        if (made := self._made.get(entry.number)) is not None:
            return made[0]
        body = self._spool.read(entry)
        if body is None:
            return None
        signal = OF_NAME[entry.signal]
        window = TimeWindow(entry.oldest_unix_ns, entry.newest_unix_ns)
        return signal.to_batch(signal.request.FromString(body), window)

    def _lost(self, plan: Plan, entry: Entry) -> None:
        """A body that the disk lost, as a power cut can where it was not synced."""
        for signal, n in entry.kept.items():
            token = f"{plan.id}/lost/{entry.number}/{signal}"
            if token not in plan.done:
                self._settle(token, signal, n, "spool_damaged")
                self._warn("a body of %d %s is damaged in the spool", n, signal)

    def _write(
        self, plan: Plan, token: str, table: str, pairs: list[tuple[Entry, Row]], refusals: list[int]
    ) -> bool:
        """Insert once; what cannot be is halved until it can or is one row."""
        if token in plan.done:
            return True
        if token not in plan.split:
            answer = self._insert(table, [row for _, row in pairs], token)
            if answer is None:
                self._settle(token, OF_TABLE[table], len(pairs), "written")
                return True
            if answer is _STOPPED:
                return False
            memory = isinstance(answer, StoreTooLarge)
            refusals[0] += not memory
            if len(pairs) == 1 or (refusals[0] > MOST_REFUSALS and not memory):
                self._set_aside(token, table, pairs, answer)
                return True
            self._spool.split(token)
        half = len(pairs) // 2
        return self._write(plan, f"{token}0", table, pairs[:half], refusals) and self._write(
            plan, f"{token}1", table, pairs[half:], refusals
        )

    def _insert(self, table: str, rows: list[Row], token: str) -> Exception | None:
        """None once it is in; the problem when these rows together never can be."""
        pause_s, memory = self._first_pause_s, 0
        while not self._out_of_time():
            try:
                self._store.insert(table, COLUMNS[table], rows, token)
            except StoreTooLarge as problem:
                memory += 1
                if len(rows) > 1 or memory >= MEMORY_TRIES:
                    return problem
            except StoreRefused as problem:
                return problem
            except (StoreBusy, StoreError) as problem:
                self.failing = True
                self._warn("the store does not take %s yet: %s", table, problem)
            except Exception as problem:  # noqa: BLE001  a fault of ours with these very rows
                return problem
            else:
                self.failing = False
                return None
            self._pause(random.uniform(0, pause_s))  # noqa: S311  jitter
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
        return _STOPPED

    def _set_aside(
        self, token: str, table: str, pairs: list[tuple[Entry, Row]], problem: Exception
    ) -> None:
        """Keep what the store will not take as an export request that can be ingested again."""
        by_entry: dict[int, tuple[Entry, list[Row]]] = {}
        for entry, row in pairs:
            by_entry.setdefault(entry.number, (entry, []))[1].append(row)
        bodies = b"".join(
            only_rows(entry, self._spool.read(entry) or b"", table, rows)
            for entry, rows in by_entry.values()
        )
        file = self._spool.set_aside(token, pairs[0][0].signal, bodies, f"{table}: {problem}")
        self._settle(token, OF_TABLE[table], len(pairs), "set_aside")
        self._warn(
            "%d row(s) of %s were set aside in %s (stagelens ingest takes it): %s",
            len(pairs), table, file, problem,
        )  # fmt: skip

    def _settle(self, token: str, signal: str, n: int, how: str) -> None:
        self._spool.done(token, signal, n, how)
        self._counts.settle(signal, n, how)

    def _out_of_time(self) -> bool:
        deadline = self._deadline_mono_ns
        return deadline is not None and self._clock.mono_ns() >= deadline

    def _pause(self, seconds: float) -> None:
        """Wait before the next try; being stopped ends it, but later waits are still waited."""
        if self._halt.is_set():
            time.sleep(min(seconds, self._first_pause_s))
        else:
            self._halt.wait(seconds)

    def _warn(self, text: str, *values: object) -> None:
        now = self._clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + WARN_EVERY_NS
            log.error(text, *values)


_STOPPED = Exception("stopped")
