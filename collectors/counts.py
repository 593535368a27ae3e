"""What came in, what was written, what was refused and why: kept for each signal."""

from __future__ import annotations

import threading
from collections import Counter

SIGNALS = ("spans", "logs", "metrics")
OF_TABLE = {
    "otel_traces": "spans",
    "otel_logs": "logs",
    "engine_steps": "logs",
    "otel_metrics_gauge": "metrics",
    "otel_metrics_sum": "metrics",
}


class Counts:
    """Thread-safe; ``received == written + sum(refused) + in_flight`` at every instant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._refused: dict[str, Counter[str]] = {signal: Counter() for signal in SIGNALS}

    def receive(self, signal: str, n: int) -> None:
        with self._lock:
            self._received[signal] += n

    def write(self, signal: str, n: int) -> None:
        with self._lock:
            self._written[signal] += n

    def refuse(self, signal: str, n: int, reason: str) -> None:
        """Count ``n`` received items as refused for ``reason``."""
        if n:
            with self._lock:
                self._refused[signal][reason] += n

    def snapshot(self) -> dict[str, dict[str, object]]:
        """By signal: received, written, refused by reason, in_flight."""
        with self._lock:
            found: dict[str, dict[str, object]] = {}
            for signal in SIGNALS:
                received, written = self._received[signal], self._written[signal]
                refused = dict(self._refused[signal])
                found[signal] = {
                    "received": received,
                    "written": written,
                    "refused": refused,
                    "in_flight": received - written - sum(refused.values()),
                }
            return found
