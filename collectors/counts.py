"""What came in, what was written, what was refused and why: kept for each signal."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

SIGNALS = ("spans", "logs", "metrics")
OF_TABLE = {
    "otel_traces": "spans",
    "otel_logs": "logs",
    "engine_steps": "logs",
    "otel_metrics_gauge": "metrics",
    "otel_metrics_sum": "metrics",
    "otel_metrics_histogram": "metrics",
    "otel_metrics_exp_histogram": "metrics",
    "otel_metrics_summary": "metrics",
}


class Counts:
    """Thread-safe; ``received == written + sum(refused) + set_aside + in_flight`` at every instant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._aside: Counter[str] = Counter()
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

    def settle(self, signal: str, n: int, how: str) -> None:
        """Count ``n`` received items as ``written``, ``set_aside`` or refused for a reason."""
        if how == "written":
            self.write(signal, n)
        elif how == "set_aside":
            with self._lock:
                self._aside[signal] += n
        else:
            self.refuse(signal, n, how)

    def load(self, told: Mapping[str, Any]) -> None:
        """Go on from an earlier snapshot; what was in flight then is received and open."""
        with self._lock:
            for signal in SIGNALS:
                one = told.get(signal, {})
                self._received[signal] = int(one.get("received", 0))
                self._written[signal] = int(one.get("written", 0))
                self._aside[signal] = int(one.get("set_aside", 0))
                self._refused[signal] = Counter(one.get("refused", {}))

    def snapshot(self) -> dict[str, dict[str, object]]:
        """By signal: received, written, refused by reason, set_aside, in_flight."""
        with self._lock:
            found: dict[str, dict[str, object]] = {}
            for signal in SIGNALS:
                received, written = self._received[signal], self._written[signal]
                refused = dict(self._refused[signal])
                aside = self._aside[signal]
                found[signal] = {
                    "received": received,
                    "written": written,
                    "refused": refused,
                    "set_aside": aside,
                    "in_flight": received - written - aside - sum(refused.values()),
                }
            return found
