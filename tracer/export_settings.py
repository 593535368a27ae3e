"""Where telemetry goes, how much of it may wait, and what is handed to the exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracer.spans import SpanDraft

if TYPE_CHECKING:
    from ssl import SSLContext


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where telemetry goes and how much of it may wait.

    ``endpoint`` is the OTLP/HTTP base URL; ``queue_items`` bounds each queue (a
    request's spans are one item); a batch not taken within ``give_up_s`` is dropped
    and counted; ``warn_every_s`` limits the log; ``headers`` go with each request. ``urls``:
    where a path (``/v1/traces``) has a URL of its own; an empty one is not sent to.
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
    urls: Mapping[str, str] = field(default_factory=dict)
    compressed: bool = False
    tls: SSLContext | None = None

    def url(self, path: str) -> str:
        """Where bodies of this path go; empty where they are not wanted."""
        return self.urls.get(path, self.endpoint + path)


@dataclass(slots=True)
class SpanGroup:
    """``count`` spans of one trace that are made only in the sending thread."""

    trace_id: int
    count: int
    make: Callable[[], Sequence[SpanDraft]]
