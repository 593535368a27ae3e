"""A thread that reads all sources once an interval and hands what they say to the writer."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from collectors.gauges.gpu import Gpus, NoGpu
from collectors.gauges.metrics import Buckets, Point, request_of
from collectors.gauges.prometheus import PrometheusPage
from collectors.receive.http import Intake
from collectors.receive.metric_rows import metric_batch
from collectors.receive.rows import TimeWindow
from collectors.settings import GaugeSettings
from collectors.spool.origin import Origin
from tracer import semconv
from tracer.clock import Clock

log = logging.getLogger("stagelens.collector")


class Source(Protocol):
    """Something with values of the moment. ``read`` may raise OSError or ValueError."""

    resource: dict[str, str]

    def read(self) -> Sequence[Point | Buckets]: ...


class Gauges:
    """``start`` and ``stop`` are safe to call twice; nothing here stops the collector."""

    def __init__(
        self, sources: Mapping[str, Source], interval_s: float, writer: Intake, clock: Clock
    ) -> None:
        self._sources = sources
        self._interval_s = interval_s
        self._writer = writer
        self._clock = clock
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._down: set[str] = set()

    def start(self) -> None:
        if self._thread is None and self._sources:
            self._thread = threading.Thread(target=self._run, name="stagelens-gauges", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._halt.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._halt.is_set():
            for name, source in self._sources.items():
                self.take(name, source)
            self._halt.wait(self._interval_s)

    def take(self, name: str, source: Source) -> None:
        """Read one source now; what is wrong with it is said when that begins and when it ends."""
        try:
            readings = list(source.read())
            up = 1.0
        except (OSError, ValueError) as problem:
            readings, up = [], 0.0
            if name not in self._down:
                self._down.add(name)
                log.warning("%s cannot be read (%s): tried again every %g s", name, problem, self._interval_s)
        else:
            if name in self._down:
                self._down.discard(name)
                log.warning("%s is read again", name)
        readings.append(Point(semconv.METRIC_SCRAPE_UP, up, {"source": name}))
        self._offer(source.resource, readings)

    def _offer(self, resource: Mapping[str, str], readings: Sequence[Point | Buckets]) -> None:
        now = self._clock.unix_ns()
        request = request_of(resource, now, readings)
        body = request.SerializeToString()
        window = TimeWindow(now, now)
        batch = metric_batch(request, window)
        digest = hashlib.sha256(b"gauges\0" + body).hexdigest()
        origin = Origin("metrics", body, (now, now), digest, dict(batch.refused))
        self._writer.offer(batch, len(body), origin)  # a full spool: this reading is left out


def build_gauges(settings: GaugeSettings, writer: Intake, clock: Clock) -> Gauges:
    """The sources of ``settings``; that there is no GPU is said once."""
    sources: dict[str, Source] = {
        page.url: PrometheusPage(page.url, page.name) for page in settings.scrape
    }
    if settings.gpu:
        try:
            sources["gpu"] = Gpus()
        except NoGpu as reason:
            log.info("no GPU gauges: %s", reason)
    return Gauges(sources, settings.interval_s, writer, clock)
