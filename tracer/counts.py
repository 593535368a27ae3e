"""Counts of what went through a queue, kept so that nothing is lost in silence."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field

from tracer import semconv
from tracer.clock import Clock

log = logging.getLogger("stagelens.export")


@dataclass(frozen=True, slots=True)
class Tally:
    """A snapshot; ``received == sent + sum(dropped.values()) + in_flight`` always holds."""

    received: int
    sent: int
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return self.received - self.sent - sum(self.dropped.values())


class Tallies:
    """Thread-safe running counts of one kind of item."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received = 0
        self._sent = 0
        self._dropped: Counter[str] = Counter()
        self._settled = False

    def receive(self, n: int) -> None:
        with self._lock:
            self._received += n
            if self._settled:
                self._dropped["closed"] += n

    def send(self, n: int) -> None:
        with self._lock:
            if not self._settled:
                self._sent += n

    def drop(self, n: int, reason: str) -> None:
        """Count ``n`` already received items as lost for ``reason``."""
        with self._lock:
            if not self._settled:
                self._dropped[reason] += n

    def settle(self, reason: str) -> int:
        """Count what is still in flight as lost; what becomes of it later is not counted again.

        What is received afterwards is lost as ``closed``. Returns how many were lost now.
        """
        with self._lock:
            left = self._received - self._sent - sum(self._dropped.values())
            if left:
                self._dropped[reason] += left
            self._settled = True
            return left

    def snapshot(self) -> Tally:
        with self._lock:
            return Tally(self._received, self._sent, dict(self._dropped))


def sums_of(spans: Tally, steps: Tally) -> list[tuple[str, dict[str, str], int]]:
    """The counts as OTLP sums: name, attributes, value."""
    sums: list[tuple[str, dict[str, str], int]] = [
        (semconv.METRIC_SPANS_RECEIVED, {}, spans.received),
        (semconv.METRIC_SPANS_SENT, {}, spans.sent),
    ]
    for name, tally in (
        (semconv.METRIC_SPANS_DROPPED, spans),
        (semconv.METRIC_STEPS_DROPPED, steps),
    ):
        sums += [(name, {semconv.DROP_REASON: why}, n) for why, n in tally.dropped.items()]
    return sums


class LossLog:
    """Losses in the log of the exporter, each kind at most once in ``every_s`` seconds."""

    def __init__(self, clock: Clock, every_s: float, queue_items: int) -> None:
        self._clock, self._every_s, self._queue_items = clock, every_s, queue_items
        self._due_mono_ns: dict[str, int] = {}
        self._told_full = 0

    def tell(self, kind: str, text: str) -> bool:
        """Whether it was time to."""
        now = self._clock.mono_ns()
        if now < self._due_mono_ns.get(kind, 0):
            return False
        self._due_mono_ns[kind] = now + int(self._every_s * 1e9)
        log.error(text)
        return True

    def tell_full(self, lost: int) -> None:
        """``lost`` items in all found their queue full."""
        if lost > self._told_full and self.tell(
            "queue_full",
            f"{lost - self._told_full} items of telemetry were lost (queue_full: "
            f"{self._queue_items} were waiting); requests are not affected",
        ):
            self._told_full = lost
