"""The way out of a process: a bounded queue, one thread, and a count of every loss.

The caller's side never blocks and never raises: when the queue is full the newest
item is dropped and counted. The thread turns items into OTLP, sends them, and
retries what the standard allows until the item's time is up.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from opentelemetry.sdk.resources import Resource

from tracer import otlp, semconv
from tracer.clock import Clock
from tracer.counts import Tallies
from tracer.otlp import LogRecordDraft, Reply, Verdict
from tracer.spans import SpanDraft

log = logging.getLogger("stagelens.export")
T = TypeVar("T")
SCOPE = "stagelens"


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where telemetry goes and how much of it may wait.

    ``endpoint`` is the OTLP/HTTP base URL; ``queue_items`` bounds each queue (a
    request's spans are one item); a batch not taken within ``give_up_s`` is dropped
    and counted; ``warn_every_s`` limits the log; ``headers`` go with each request.
    """

    endpoint: str
    queue_items: int = 8192
    batch_items: int = 256
    interval_s: float = 0.5
    give_up_s: float = 30.0
    post_timeout_s: float = 5.0
    metrics_every_s: float = 5.0
    warn_every_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """``count`` spans of one trace that are made only in the sending thread."""

    trace_id: int
    count: int
    make: Callable[[], Sequence[SpanDraft]]


class _Queue(Generic[T]):
    """A bounded FIFO whose losses are counted."""

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._weigh = weigh
        self.tallies = Tallies()

    def put(self, item: T) -> None:
        weight = self._weigh(item)
        self.tallies.receive(weight)
        if len(self._items) >= self._limit:
            self.tallies.drop(weight, "queue_full")
            return
        self._items.append(item)

    def take(self, most: int) -> list[T]:
        batch: list[T] = []
        while self._items and len(batch) < most:
            batch.append(self._items.popleft())
        return batch

    def give_up(self, reason: str) -> None:
        for item in self.take(len(self._items)):
            self.tallies.drop(self._weigh(item), reason)

    def __len__(self) -> int:
        return len(self._items)


class OtlpExporter:
    """Sends spans, engine steps and its own loss counts to one OTLP/HTTP endpoint.

    ``start`` begins the thread; ``close(deadline_s)`` sends what is left within the
    deadline and counts the rest as dropped. Both are safe to call twice.
    """

    def __init__(self, settings: ExportSettings, resource: Resource, clock: Clock) -> None:
        self._settings = settings
        self._resource = resource
        self._clock = clock
        self._spans: _Queue[SpanGroup] = _Queue(settings.queue_items, lambda group: group.count)
        self._steps: _Queue[LogRecordDraft] = _Queue(settings.queue_items, lambda _: 1)
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._closing = False
        self._deadline_mono_ns: int | None = None
        self._thread: threading.Thread | None = None
        self._started_unix_ns = clock.unix_ns()
        self._metrics_due_mono_ns = clock.mono_ns() + int(settings.metrics_every_s * 1e9)
        self._warn_due_mono_ns = 0
        self._reported: tuple[object, ...] = ()

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stagelens-export", daemon=True)
            self._thread.start()

    def restart_after_fork(self) -> None:
        """In a forked child: its own thread, and none of the parent's items or counts."""
        running = self._thread is not None and not self._closing
        self._spans = _Queue(self._settings.queue_items, lambda group: group.count)
        self._steps = _Queue(self._settings.queue_items, lambda _: 1)
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._thread, self._reported = None, ()
        if running:
            self.start()

    def put_spans(self, group: SpanGroup) -> None:
        """Queue a request's spans; full or closed: dropped and counted."""
        self._put(self._spans, group)

    def put_step(self, step: LogRecordDraft) -> None:
        """Queue an engine step; full or closed: dropped and counted."""
        self._put(self._steps, step)

    def _put(self, queue: _Queue[T], item: T) -> None:
        queue.put(item)
        if self._closing:
            queue.give_up("closed")
        elif len(queue) >= self._settings.batch_items:
            self._wake.set()

    def losses(self) -> dict[str, dict[str, object]]:
        """Counts of spans and steps: received, sent, in_flight and dropped by reason."""
        found: dict[str, dict[str, object]] = {}
        for name, queue in (("spans", self._spans), ("steps", self._steps)):
            tally = queue.tallies.snapshot()
            found[name] = {
                "received": tally.received,
                "sent": tally.sent,
                "in_flight": tally.in_flight,
                "dropped": tally.dropped,
            }
        return found

    def flush(self, deadline_s: float) -> bool:
        """Send everything queued so far; ``False`` when the deadline passed first."""
        self._wake.set()
        with self._settled:
            return self._settled.wait_for(lambda: self._in_flight() == 0, deadline_s)

    def _in_flight(self) -> int:
        return sum(q.tallies.snapshot().in_flight for q in (self._spans, self._steps))

    def close(self, deadline_s: float) -> bool:
        """Flush, stop the thread, count what is left as dropped; ``True`` if nothing was."""
        if self._thread is None or self._closing:
            return len(self._spans) + len(self._steps) == 0
        self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
        self._closing = True
        self._wake.set()
        self._thread.join(deadline_s + 0.5)
        left = len(self._spans) + len(self._steps)
        self._spans.give_up("shutdown")
        self._steps.give_up("shutdown")
        if left:
            log.error("%d batches of telemetry were not sent before the deadline", left)
        return left == 0

    # -- the sending thread ----------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._settings.interval_s)
            self._wake.clear()
            self._drain()
        self._drain()
        self._send_counts(force=True)

    def _drain(self) -> None:
        while (self._spans or self._steps) and not self._out_of_time():
            if groups := self._spans.take(self._settings.batch_items):
                self._send_spans(groups)
            if steps := self._steps.take(self._settings.batch_items * 4):
                body = otlp.logs_body(self._resource, SCOPE, steps)
                self._deliver("/v1/logs", body, len(steps), self._steps.tallies)
            self._send_counts(force=False)
        with self._settled:
            self._settled.notify_all()
        self._send_counts(force=False)

    def _send_spans(self, groups: list[SpanGroup]) -> None:
        body, count = otlp.SpansBody(self._resource, SCOPE), 0
        for group in groups:
            try:
                body.add(group.trace_id, group.make())
            except Exception:  # noqa: BLE001  one bad record must not stop the others
                self._warn("a request's spans could not be built", exc_info=True)
                self._spans.tallies.drop(group.count, "build_failed")
            else:
                count += group.count
            time.sleep(0)  # the interpreter is the event loop's when it wants it
        if count:
            self._deliver("/v1/traces", body.encode(), count, self._spans.tallies)

    def _deliver(self, path: str, body: bytes, count: int, tallies: Tallies) -> None:
        give_up = self._clock.mono_ns() + int(self._settings.give_up_s * 1e9)
        pause_s = 0.1
        while True:
            reply = self._post(path, body)
            if reply.verdict is Verdict.TAKEN:
                tallies.send(count - reply.rejected)
                if reply.rejected:
                    tallies.drop(reply.rejected, "rejected")
                return None
            if reply.verdict is Verdict.REFUSED:
                return self._lose(count, "refused", reply.detail, tallies)
            wait_s = reply.retry_after_s or random.uniform(0, pause_s)  # noqa: S311  jitter
            pause_s = min(pause_s * 2, 5.0)
            ends = min(give_up, self._deadline_mono_ns or give_up)
            if self._clock.mono_ns() + int(wait_s * 1e9) >= ends:
                return self._lose(count, "unavailable", reply.detail, tallies)
            self._pause(wait_s)

    def _post(self, path: str, body: bytes) -> Reply:
        to = self._settings.endpoint + path
        return otlp.post(to, body, self._timeout_s(), self._settings.headers)

    def _pause(self, seconds: float) -> None:
        """Wait, but wake when the exporter is being closed."""
        self._wake.wait(seconds)
        if not self._closing:
            self._wake.clear()

    def _lose(self, count: int, reason: str, detail: str, tallies: Tallies) -> None:
        tallies.drop(count, reason)
        self._warn(
            f"{count} items of telemetry were lost ({reason}: {detail}) at "
            f"{self._settings.endpoint}; requests are not affected"
        )

    def _warn(self, text: str, *, exc_info: bool = False) -> None:
        now = self._clock.mono_ns()
        if now >= self._warn_due_mono_ns:
            self._warn_due_mono_ns = now + int(self._settings.warn_every_s * 1e9)
            log.error(text, exc_info=exc_info)

    def _out_of_time(self) -> bool:
        return self._deadline_mono_ns is not None and (
            self._clock.mono_ns() >= self._deadline_mono_ns
        )

    def _timeout_s(self) -> float:
        if self._deadline_mono_ns is None:
            return self._settings.post_timeout_s
        left = (self._deadline_mono_ns - self._clock.mono_ns()) / 1e9
        return max(0.05, min(left, self._settings.post_timeout_s))

    def _send_counts(self, *, force: bool) -> None:
        """Tell the collector what was lost here, when it changed; best effort by design."""
        now = self._clock.mono_ns()
        if not force and now < self._metrics_due_mono_ns:
            return
        self._metrics_due_mono_ns = now + int(self._settings.metrics_every_s * 1e9)
        spans, steps = self._spans.tallies.snapshot(), self._steps.tallies.snapshot()
        if (spans, steps) == self._reported or not spans.received + steps.received:
            return
        sums: list[tuple[str, dict[str, str], int]] = [
            (semconv.METRIC_SPANS_RECEIVED, {}, spans.received),
            (semconv.METRIC_SPANS_SENT, {}, spans.sent),
        ]
        for name, tally in (
            (semconv.METRIC_SPANS_DROPPED, spans),
            (semconv.METRIC_STEPS_DROPPED, steps),
        ):
            sums += [(name, {semconv.DROP_REASON: why}, n) for why, n in tally.dropped.items()]
        body = otlp.sums_body(
            self._resource, SCOPE, self._started_unix_ns, self._clock.unix_ns(), sums
        )
        reply = self._post("/v1/metrics", body)
        if reply.verdict is Verdict.TAKEN:
            self._reported = (spans, steps)
