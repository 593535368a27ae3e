"""Rows of ``requests`` for traces of other tools, made once their spans are quiet.

A view notes which traces had new spans of other tools and when; this thread looks there,
never at all spans, and taking in builds nothing in Python for it. What comes late makes
the trace's rows anew, and they replace the former ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.normalise.classify import Kind
from collectors.normalise.join import joined
from collectors.normalise.row import Row, row_of
from collectors.normalise.settings import NormaliseSettings
from collectors.normalise.span import Span
from collectors.normalise.tables import Seen, Tables
from collectors.normalise.tree import forest
from collectors.store.errors import StoreError
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")
WARN_EVERY_NS = 60 * 10**9
OVERLAP_MS = 30_000
"""Notes bear the time at which their insert began: one may show up after later ones."""
MOST_WAITING = 200_000
"""Traces that wait in memory; the notes of others stay in the store until there is room."""
BATCH = 500
"""Traces whose spans are read at once."""
MOST_AT_A_LOOK = 10 * BATCH
KEEP_EVERY_MS = 30_000


@dataclass(slots=True)
class NormaliserCounts:
    """Since the start."""

    rows: int = 0
    replaced: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Waiting:
    first_ms: int
    last_ms: int
    calls: int


@dataclass(slots=True)
class Normaliser:
    """``start`` and ``stop`` its thread, or ``look`` once. One process a store should run it."""

    tables: Tables
    clock: Clock
    settings: NormaliseSettings = field(default_factory=NormaliseSettings)
    counts: NormaliserCounts = field(default_factory=NormaliserCounts)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _done: dict[str, int] = field(default_factory=dict)
    _cursor_ms: int | None = None
    _kept_ms: int = 0
    _halt: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _warn_due_mono_ns: int = 0

    def start(self) -> None:
        if self._thread is None and self.settings.enabled:
            self._thread = threading.Thread(target=self._run, name="stagelens-normalise", daemon=True)
            self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """What waits is found again by the next process."""
        self._halt.set()
        if self._thread is not None:
            self._thread.join(deadline_s)

    def _run(self) -> None:
        while not self._halt.is_set():
            began = time.thread_time_ns()
            try:
                self.look()
            except StoreError as problem:
                self._warn("requests of other tools wait: %s", problem)
            except Exception:  # the thread must outlive any one trace
                log.exception("requests of other tools were interrupted")
            worked_s = (time.thread_time_ns() - began) / 1e9  # what it held the interpreter
            rest = worked_s * (1 - self.settings.duty) / self.settings.duty
            self._halt.wait(max(self.settings.interval_s, rest))

    def look(self) -> int:
        """Take in new notes and make the rows of all traces that are due; how many were due.

        Raises:
            StoreError: what was not done is done at the next look.
        """
        now = self.tables.now_ms()
        self._take(now)
        due = self._due(now)
        for at in range(0, len(due), BATCH):
            if self._halt.is_set():
                break
            part = due[at : at + BATCH]
            self._make(self._called(part))
            for trace_id in part:
                self._done[trace_id] = self._waiting.pop(trace_id).last_ms
        self._forget(now)
        if due:
            self._keep(now)
        self.counts.waiting = len(self._waiting)
        return len(due)

    # -- which traces ------------------------------------------------------------

    def _take(self, now: int) -> None:
        if self._cursor_ms is None:
            told = self.tables.cursor_ms()
            self._cursor_ms = 0 if told is None else told
        room = MOST_WAITING - len(self._waiting)
        if room <= 0:
            return
        seen = self.tables.seen_since(self._cursor_ms - OVERLAP_MS, room)
        for one in seen:
            self._note(one)
        whole = len(seen) < room
        self._cursor_ms = max(self._cursor_ms, now - 1 if whole else seen[-1].last_ms - 1)

    def _note(self, one: Seen) -> None:
        if self._done.get(one.trace_id, -1) >= one.last_ms:
            return
        known = self._waiting.get(one.trace_id)
        if known is None:
            self._waiting[one.trace_id] = _Waiting(one.first_ms, one.last_ms, one.calls)
        else:
            known.last_ms = max(known.last_ms, one.last_ms)
            known.calls = max(known.calls, one.calls)

    def _due(self, now: int) -> list[str]:
        quiet, longest = self.settings.quiet_s * 1000, self.settings.longest_wait_s * 1000
        return [
            trace_id
            for trace_id, one in self._waiting.items()
            if now - one.last_ms >= quiet or now - one.first_ms >= longest
        ][:MOST_AT_A_LOOK]

    def _called(self, due: Sequence[str]) -> list[str]:
        """Those with a model call of another tool, now or in spans that came before."""
        sure = {trace_id for trace_id in due if self._waiting[trace_id].calls}
        others = [trace_id for trace_id in due if trace_id not in sure]
        if others:
            sure |= self.tables.with_calls(others)
        return sorted(sure)

    def _forget(self, now: int) -> None:
        """What was done before the overlap cannot be told of again."""
        oldest = min(now, self._cursor_ms or now) - 2 * OVERLAP_MS
        self._done = {t: last for t, last in self._done.items() if last >= oldest}

    def _keep(self, now: int) -> None:
        """Where the next process begins: before the oldest trace that still waits."""
        oldest = min((w.first_ms for w in self._waiting.values()), default=self._cursor_ms or now)
        if oldest - self._kept_ms >= KEEP_EVERY_MS:
            self.tables.keep_cursor(oldest)
            self._kept_ms = oldest

    # -- their rows -----------------------------------------------------------------

    def _make(self, trace_ids: Sequence[str]) -> None:
        if not trace_ids:
            return
        spans = self.tables.spans(trace_ids)
        before: dict[str, list[Row]] = {}
        for row in self.tables.rows(trace_ids):
            before.setdefault(str(row["TraceId"]), []).append(row)
        known = (int(str(row["Version"])) for rows in before.values() for row in rows)
        version = max(self.clock.unix_ns(), 1 + max(known, default=0))
        new: list[Row] = []
        old: list[Row] = []
        for trace_id, of_trace in spans.items():
            try:
                made, gone = changes(of_trace, before.get(trace_id, []), version)
            except Exception:  # one trace's oddity must not stop the others
                self.counts.failed += 1
                log.exception("trace %s made no request", trace_id)
                continue
            new += made
            old += gone
        if new or old:
            self.tables.replace(new, old, version)
            self.counts.rows += len(new)
            self.counts.replaced += len(old)

    def _warn(self, text: str, *values: object) -> None:
        now = self.clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + WARN_EVERY_NS
            log.error(text, *values)


def changes(
    spans: Sequence[Span], before: Sequence[Row], version: int
) -> tuple[list[Row], list[Row]]:
    """Rows to put in and rows to take out, so that the trace's rows say what its spans say."""
    stored = {str(row["SpanId"]): row for row in sorted(before, key=lambda r: int(str(r["Version"])))}
    extra = [row for row in before if stored[str(row["SpanId"])] is not row]
    made: dict[str, Row] = {}
    records: set[str] = set()
    for root in forest(spans):
        for node in root.below():
            if node.kind is Kind.RECORD:
                records.add(node.span.span_id)
                known = stored.get(node.span.span_id)
                told = joined(node, known) if known is not None else None
                if known is not None and told is not None:
                    made[node.span.span_id] = {**known, **told}
        row = row_of(root)
        if row is not None:
            made[root.span.span_id] = row
    new = [
        {**row, "Version": version}
        for key, row in made.items()
        if key not in stored or any(stored[key].get(name) != value for name, value in row.items())
    ]
    fresh = {str(row["SpanId"]) for row in new}
    old = [
        row
        for key, row in stored.items()
        if key in fresh or (key not in made and key not in records and row["Version"])
    ]
    return new, old + extra
