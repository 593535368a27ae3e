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
from typing import TypeVar

from opentelemetry import context as otel_context
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource

from tracer import limits, otlp
from tracer.clock import Clock
from tracer.counts import LossLog, Tallies, sums_of
from tracer.export_settings import ExportSettings, SpanGroup
from tracer.otlp import LogRecordDraft
from tracer.post import Poster, Reply, Verdict
from tracer.queues import BoundedQueue

log = logging.getLogger("stagelens.export")
T = TypeVar("T")
SCOPE = "stagelens"


GIVE_WAY_S = 1e-4
"""Between two halves of a record: sleep(0) takes the interpreter back before a loop is awake."""
PACE_S = 5e-3
"""Most time between two records while nobody waits for them: a request that meets the making of
one shall not meet that of the next as well."""
_UNWATCHED = otel_context.Context(
    {otel_context._SUPPRESS_INSTRUMENTATION_KEY: True, "suppress_instrumentation": True}  # noqa: SLF001
)
"""Instrumentations of HTTP clients make no spans here, which would be sent, and so on for ever."""


class OtlpExporter:
    """Sends spans, engine steps and its own loss counts to one OTLP/HTTP endpoint.

    ``start`` begins the thread; ``close(deadline_s)`` sends what is left within the
    deadline and counts the rest as dropped. Both are safe to call twice.
    """

    def __init__(self, settings: ExportSettings, resource: Resource, clock: Clock) -> None:
        self._settings = settings
        self._poster = Poster(settings.headers, settings.tls, compressed=settings.compressed)
        self._resource = resource
        self._clock = clock
        self._spans: BoundedQueue[SpanGroup] = BoundedQueue(settings.queue_items, lambda group: group.count)
        self._steps: BoundedQueue[LogRecordDraft] = BoundedQueue(settings.queue_items, lambda _: 1)
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._closing = False
        self._deadline_mono_ns: int | None = None
        self._thread: threading.Thread | None = None
        self._started_unix_ns = clock.unix_ns()
        self._metrics_due_mono_ns = clock.mono_ns() + int(settings.metrics_every_s * 1e9)
        self._log = LossLog(clock, settings.warn_every_s, settings.queue_items)
        self._wanted = False
        self._jitter = random.Random()  # noqa: S311  the program's own sequence is not touched
        self._reported: tuple[object, ...] = ()

    def start(self) -> None:
        import urllib.request  # noqa: F401  not first in a thread that may outlive the program
        self._wanted = True
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name="stagelens-export", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the program ends, or may have no more threads: close() sends
                self._thread = None

    def restart_after_fork(self, resource: Resource) -> None:
        """In a forked child: none of the parent's items or counts; a thread with the first item."""
        self._resource = resource
        self._spans = BoundedQueue(self._settings.queue_items, lambda group: group.count)
        self._steps = BoundedQueue(self._settings.queue_items, lambda _: 1)
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._thread, self._reported = None, ()
        self._log = LossLog(self._clock, self._settings.warn_every_s, self._settings.queue_items)
        self._started_unix_ns = self._clock.unix_ns()

    def put_spans(self, group: SpanGroup) -> None:
        """Queue a request's spans; full or closed: dropped and counted."""
        self._put(self._spans, group)

    def lose_span(self, reason: str) -> None:
        """Count a span that will not come; not after :meth:`close`, for the counts are then final."""
        if not self._closing:
            self._spans.tallies.receive(1)
            self._spans.tallies.drop(1, reason)

    def put_step(self, step: LogRecordDraft) -> None:
        """Queue an engine step; full or closed: dropped and counted."""
        self._put(self._steps, step)

    def _put(self, queue: BoundedQueue[T], item: T) -> None:
        queue.put(item)
        if self._thread is None and self._wanted:
            self.start()
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
                "received": tally.received, "sent": tally.sent, "in_flight": tally.in_flight,
                "dropped": tally.dropped,
            }  # fmt: skip
        return found

    def flush(self, deadline_s: float) -> bool:
        """Send everything queued so far; ``False`` when the deadline passed first."""
        self._wake.set()
        with self._settled:
            return self._settled.wait_for(lambda: self._in_flight() == 0, deadline_s)

    def _in_flight(self) -> int:
        return sum(q.tallies.snapshot().in_flight for q in (self._spans, self._steps))

    def close(self, deadline_s: float) -> bool:
        """Flush, stop the thread, count what is left as dropped; ``True`` if nothing was lost, ever."""
        if self._closing:
            return not self._lost()
        self._deadline_mono_ns = self._clock.mono_ns() + int(deadline_s * 1e9)
        self._closing = True
        if self._thread is None:
            self._send_here()
            return not self._lost()
        self._wake.set()
        self._thread.join(deadline_s + 0.5)
        self._spans.give_up("shutdown")
        self._steps.give_up("shutdown")
        if self._thread.is_alive():  # stuck in a send: what it holds is not waited for
            self._spans.tallies.settle("shutdown")
            self._steps.tallies.settle("shutdown")
        lost = self._lost()
        if lost:
            log.error("telemetry that did not reach %s: %s", self._settings.endpoint, lost)
        return not lost

    def _lost(self) -> dict[str, object]:
        return {name: told["dropped"] for name, told in self.losses().items() if told["dropped"]}

    def _send_here(self) -> None:
        """At the end of a process whose thread could not be started, as a late fork's."""
        token = otel_context.attach(_UNWATCHED)
        self._drain()
        otel_context.detach(token)
        self._spans.give_up("shutdown")
        self._steps.give_up("shutdown")

    # -- the sending thread ----------------------------------------------------

    def _run(self) -> None:
        otel_context.attach(_UNWATCHED)
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
                self._send_steps(steps)
            self._send_counts(force=False)
        self._tell_full()
        with self._settled:
            self._settled.notify_all()
        self._send_counts(force=False)

    def _send_steps(self, steps: list[LogRecordDraft]) -> None:
        try:
            body = otlp.logs_body(self._resource, SCOPE, steps)
        except Exception as problem:  # noqa: BLE001  or the thread would end
            self._lose(len(steps), "build_failed", type(problem).__name__, self._steps.tallies)
        else:
            self._deliver("/v1/logs", body, len(steps), self._steps.tallies)

    def _send_spans(self, groups: list[SpanGroup]) -> None:
        waiting: list[Span] = []
        size = 0
        pace_s = min(PACE_S, self._settings.interval_s / (4 * len(groups)))
        for group in groups:
            try:
                drafts = group.make()
                time.sleep(GIVE_WAY_S)
                made = otlp.spans_of(group.trace_id, drafts)
            except Exception as problem:  # noqa: BLE001  one bad record must not stop the others
                kind = type(problem).__name__
                self._lose(group.count, "build_failed", kind, self._spans.tallies)
                continue
            for span in made:
                bytes_ = limits.fit(span) + 8
                if waiting and size + bytes_ > limits.BODY_BYTES:
                    self._post_spans(waiting)
                    waiting, size = [], 0
                waiting.append(span)
                size += bytes_
            time.sleep(GIVE_WAY_S if self._wake.is_set() or self._closing else pace_s)
        if waiting:
            self._post_spans(waiting)

    def _post_spans(self, spans: list[Span]) -> None:
        """Send them; halves of them where the peer's limit is lower than ours."""
        body = otlp.spans_body(self._resource, SCOPE, spans)
        reply = self._deliver("/v1/traces", body, len(spans), self._spans.tallies, len(spans) > 1)
        if reply.too_large:
            middle = len(spans) // 2
            self._post_spans(spans[:middle])
            self._post_spans(spans[middle:])

    def _deliver(
        self, path: str, body: bytes, count: int, tallies: Tallies, divisible: bool = False
    ) -> Reply:
        """Send one body and count what became of it; a divisible one that is too large is not."""
        give_up, pause_s = self._clock.mono_ns() + int(self._settings.give_up_s * 1e9), 0.1
        while True:
            reply = self._post(path, body)
            self._tell_full()
            if reply.verdict is Verdict.TAKEN:
                tallies.send(count - reply.rejected)
                if reply.rejected:
                    tallies.drop(reply.rejected, "rejected")
                return reply
            if reply.verdict is Verdict.REFUSED:
                if reply.too_large and divisible:
                    return reply
                self._lose(count, "refused", reply.detail, tallies)
                return Reply(Verdict.REFUSED)
            wait_s = reply.retry_after_s or self._jitter.uniform(0, pause_s)
            pause_s = min(pause_s * 2, 5.0)
            ends = min(give_up, self._deadline_mono_ns or give_up)
            if self._clock.mono_ns() + int(wait_s * 1e9) >= ends:
                self._lose(count, "unavailable", reply.detail, tallies)
                return reply
            self._pause(wait_s)

    def _post(self, path: str, body: bytes) -> Reply:
        return self._poster.post(self._settings.url(path), body, self._timeout_s())

    def _pause(self, seconds: float) -> None:
        """Wait, but wake when the exporter begins to be closed."""
        if self._closing:
            time.sleep(min(seconds, 0.5))
        elif self._wake.wait(seconds) and not self._closing:
            self._wake.clear()

    def _lose(self, count: int, reason: str, detail: str, tallies: Tallies) -> None:
        tallies.drop(count, reason)
        self._log.tell(
            reason,
            f"{count} items of telemetry were lost ({reason}: {detail}) at "
            f"{self._settings.endpoint}; requests are not affected",
        )

    def _tell_full(self) -> None:
        """Told here, and not on the thread that lost them."""
        told = [q.tallies.snapshot().dropped for q in (self._spans, self._steps)]
        self._log.tell_full(sum(dropped.get("queue_full", 0) for dropped in told))

    def _out_of_time(self) -> bool:
        deadline = self._deadline_mono_ns
        return deadline is not None and self._clock.mono_ns() >= deadline

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
        if not self._settings.url("/v1/metrics"):
            return
        spans, steps = self._spans.tallies.snapshot(), self._steps.tallies.snapshot()
        if (spans, steps) == self._reported or not spans.received + steps.received:
            return
        since, sums = self._started_unix_ns, sums_of(spans, steps)
        body = otlp.sums_body(self._resource, SCOPE, since, self._clock.unix_ns(), sums)
        reply = self._post("/v1/metrics", body)
        if reply.verdict is Verdict.TAKEN:
            self._reported = (spans, steps)
