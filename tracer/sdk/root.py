"""The record of one task of the application: its stages, which add up to its time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from opentelemetry import context as otel_context
from opentelemetry.trace import Span

from tracer import semconv
from tracer.stages import Stage, StageInterval, partition

_KEY = otel_context.create_key("stagelens-task")
SOURCE = "app"
OPERATION = "invoke_workflow"


class Task:
    """Collects the stages below one outermost span, from any thread or task."""

    def __init__(self, start_mono_ns: int) -> None:
        self.start_mono_ns = start_mono_ns
        self.first_item_mono_ns: int | None = None
        self._intervals: list[StageInterval] = []
        self._lock = threading.Lock()

    def add(self, stage: Stage, start_mono_ns: int, end_mono_ns: int) -> None:
        with self._lock:
            self._intervals.append(StageInterval(stage, start_mono_ns, max(start_mono_ns, end_mono_ns)))

    def write(self, span: Span, end_mono_ns: int, status: str, error_type: str) -> None:
        """The record's attributes, as the proxy writes them on its own roots."""
        for name, value in self._record(end_mono_ns, status):
            span.set_attribute(name, value)
        if error_type:
            span.set_attribute(semconv.ERROR_TYPE, error_type)

    def _record(self, end_mono_ns: int, status: str) -> Iterator[tuple[str, str | int | bool]]:
        with self._lock:
            divided = partition(self.start_mono_ns, end_mono_ns, self._intervals)
        yield semconv.RECORD_VERSION, semconv.RECORD_VERSION_NOW
        yield semconv.SOURCE, SOURCE
        yield semconv.OPERATION, OPERATION
        yield semconv.STATUS, status
        yield semconv.STREAM, self.first_item_mono_ns is not None
        yield semconv.E2E_NS, end_mono_ns - self.start_mono_ns
        for stage in Stage:
            yield semconv.stage_ns(stage), divided.exclusive_ns[stage]
            if count := divided.counts[stage]:
                yield semconv.stage_count(stage), count
        if self.first_item_mono_ns is not None:
            yield semconv.FIRST_CHUNK_NS, self.first_item_mono_ns - self.start_mono_ns
            yield semconv.FIRST_TOKEN_NS, self.first_item_mono_ns - self.start_mono_ns


def current_task() -> Task | None:
    found = otel_context.get_value(_KEY)
    return found if isinstance(found, Task) else None


def with_task(task: Task, context: otel_context.Context) -> otel_context.Context:
    return otel_context.set_value(_KEY, task, context)
