"""Counts of what went through a queue, kept so that nothing is lost in silence."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from tracer import semconv


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
