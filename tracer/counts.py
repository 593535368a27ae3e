"""Counts of what went through a queue, kept so that nothing is lost in silence."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


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

    def receive(self, n: int) -> None:
        with self._lock:
            self._received += n

    def send(self, n: int) -> None:
        with self._lock:
            self._sent += n

    def drop(self, n: int, reason: str) -> None:
        """Count ``n`` already received items as lost for ``reason``."""
        with self._lock:
            self._dropped[reason] += n

    def snapshot(self) -> Tally:
        with self._lock:
            return Tally(self._received, self._sent, dict(self._dropped))
