"""A store that does as it is told, and a writer in front of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from collectors.counts import Counts
from collectors.receive.rows import Batch, Row
from collectors.settings import CollectorSettings
from collectors.store.errors import StoreBusy, StoreRefused
from collectors.write.writer import Writer
from tracer.clock import SystemClock

OK, BUSY, LOST, REFUSED, BROKEN = "ok", "busy", "lost reply", "refused", "broken"


@dataclass
class ScriptedStore:
    """Takes inserts as told, then well; as ClickHouse, one token's rows are kept once."""

    script: list[str] = field(default_factory=list)
    always: str = OK
    bad: Callable[[Row], bool] = lambda _: False
    look: Callable[[list[Row]], None] = lambda _: None
    calls: list[tuple[str, str, list[Row]]] = field(default_factory=list)
    at_mono_s: list[float] = field(default_factory=list)
    kept: dict[str, list[Row]] = field(default_factory=dict)

    def insert(self, table: str, columns: Sequence[str], rows: list[Row], token: str) -> None:
        self.calls.append((table, token, list(rows)))
        self.at_mono_s.append(time.monotonic())
        self.look(rows)
        told = self.script.pop(0) if self.script else self.always
        if told == BUSY:
            raise StoreBusy("busy")
        if token in self.kept and told in (REFUSED, BROKEN):
            return  # what it has taken it does not find wrong later
        if told == REFUSED or any(self.bad(row) for row in rows):
            raise StoreRefused("no")
        if told == BROKEN:
            raise RuntimeError("a fault of ours")
        self.kept.setdefault(token, list(rows))
        if told == LOST:
            raise StoreBusy("the reply was lost")

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.kept.values() for row in rows]


def made(store: ScriptedStore, clock=None, **told: object) -> tuple[Writer, Counts]:
    options = CollectorSettings(**{"batch_interval_s": 0.005, "retry_deadline_s": 20, **told})  # type: ignore[arg-type]
    counts = Counts()
    return Writer(store, options, counts, clock or SystemClock(), first_pause_s=0.002), counts


@contextmanager
def running(store: ScriptedStore, **told: object):
    writer, counts = made(store, **told)
    writer.start()
    try:
        yield writer, counts
    finally:
        writer.stop(5)


def batch(*rows: int, table: str = "otel_traces") -> Batch:
    return Batch({table: [(n,) for n in rows]})


def until(true: Callable[[], object], within_s: float = 10) -> None:
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


def spans(counts: Counts) -> dict[str, object]:
    return counts.snapshot()["spans"]
