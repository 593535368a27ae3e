"""The record of one task of the application: its stages, which add up to its time."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel

from tracer import semconv
from tracer.stages import Stage, StageInterval, partition

_KEY = otel_context.create_key("stagelens-task")
SPAN_KEY = next(iter(otel.set_span_in_context(otel.INVALID_SPAN, otel_context.Context())))
"""The key under which OpenTelemetry keeps the current span."""
SOURCE = "app"
OPERATION = "invoke_workflow"
Interval = tuple[Stage, int, int]


class Carries(IntEnum):
    """What an item of a stream carries of a model's answer."""

    NOTHING = 0
    TOKEN = 1
    ANSWER = 2


class Task:
    """Collects the stages below one outermost span, from any thread or task.

    Appending to a list needs no lock, and a lock could be left taken by a fork. ``waits``
    are times in which a client did not take what was there: they are ``deliver``, and no
    part of a ``decode`` around them.
    """

    closed = False
    operation = OPERATION
    streams: bool | None = None
    first_chunk_mono_ns: int | None = None
    """Of what the task itself gives; so are the next two."""
    first_token_mono_ns: int | None = None
    first_answer_mono_ns: int | None = None
    model_token_mono_ns: int | None = None
    """Of any model's stream inside; so are the next two."""
    model_answer_mono_ns: int | None = None
    last_token_mono_ns: int | None = None

    def __init__(self, start_mono_ns: int) -> None:
        self.start_mono_ns = start_mono_ns
        self.intervals: list[Interval] = []
        self.waits: list[tuple[int, int]] = []

    def add(self, stage: Stage, start_mono_ns: int, end_mono_ns: int) -> None:
        """A stage ran; one that ends after the task is none of its."""
        if self.closed:
            return
        self.intervals.append((stage, start_mono_ns, max(start_mono_ns, end_mono_ns)))

    def note_item(self, mono_ns: int, carries: Carries) -> None:
        """The task's own stream gave an item."""
        if self.first_chunk_mono_ns is None:
            self.first_chunk_mono_ns = mono_ns
        if carries and self.first_token_mono_ns is None:
            self.first_token_mono_ns = mono_ns
        if carries is Carries.ANSWER and self.first_answer_mono_ns is None:
            self.first_answer_mono_ns = mono_ns

    def note_token(self, mono_ns: int, carries: Carries) -> None:
        """A model's stream inside gave a token."""
        if self.model_token_mono_ns is None:
            self.model_token_mono_ns = mono_ns
        if carries is Carries.ANSWER and self.model_answer_mono_ns is None:
            self.model_answer_mono_ns = mono_ns
        self.last_token_mono_ns = mono_ns

    def record(self, end_mono_ns: int, status: str) -> dict[str, Any]:
        """The record's attributes, as the proxy writes them on its own roots."""
        start, chunk = self.start_mono_ns, self.first_chunk_mono_ns
        told = _BARE.copy()
        told[semconv.OPERATION] = self.operation
        told[semconv.STATUS] = status
        told[semconv.STREAM] = chunk is not None if self.streams is None else self.streams
        told[semconv.E2E_NS] = end_mono_ns - start
        if self.intervals:
            told.update(self._stages(end_mono_ns))
        else:
            told[_REST] = end_mono_ns - start
        for name, at in (
            (semconv.FIRST_CHUNK_NS, chunk),
            (semconv.FIRST_TOKEN_NS, self.first_token_mono_ns),
            (semconv.FIRST_ANSWER_NS, self.first_answer_mono_ns),
        ):
            if at is not None:
                told[name] = at - start
        return told

    def _stages(self, end_mono_ns: int) -> dict[str, int]:
        """Every stage's exclusive time, and how often it ran where it did."""
        given, cut = list(self.intervals), list(self.waits)
        pieces = [piece for one in given for piece in _without(one, cut)]
        pieces += [StageInterval(Stage.DELIVER, *wait) for wait in cut]
        divided = partition(self.start_mono_ns, end_mono_ns, pieces)
        told = {semconv.stage_ns(stage): ns for stage, ns in divided.exclusive_ns.items()}
        for stage, _, _ in given:
            name = semconv.stage_count(stage)
            told[name] = told.get(name, 0) + 1
        return told


_BARE: dict[str, Any] = {
    semconv.RECORD_VERSION: semconv.RECORD_VERSION_NOW,
    semconv.SOURCE: SOURCE,
    **{semconv.stage_ns(stage): 0 for stage in Stage},
}
_REST = semconv.stage_ns(Stage.UNATTRIBUTED)


def _without(one: Interval, waits: list[tuple[int, int]]) -> list[StageInterval]:
    """A ``decode`` without the times in which the client was waited for; others as they are."""
    stage, start, end = one
    pieces: list[StageInterval] = []
    if stage is Stage.DECODE:
        for begun, over in waits:
            if start <= begun and over <= end:
                pieces.append(StageInterval(stage, start, begun))
                start = over
    pieces.append(StageInterval(stage, start, end))
    return pieces


def task_of(context: otel_context.Context) -> Task | None:
    found = context.get(_KEY)
    return found if isinstance(found, Task) else None


def current_task() -> Task | None:
    return task_of(otel_context.get_current())


def with_task(task: Task, context: otel_context.Context) -> otel_context.Context:
    return otel_context.set_value(_KEY, task, context)


def without_task(context: otel_context.Context) -> otel_context.Context:
    if _KEY not in context:
        return context
    return otel_context.Context({key: value for key, value in context.items() if key != _KEY})


def below(outer: otel_context.Context, span: otel.Span, task: Task | None) -> otel_context.Context:
    """``outer`` with ``span`` as the current one, and with ``task`` where one begins with it."""
    if task is None:
        return otel_context.Context({**outer, SPAN_KEY: span})
    return otel_context.Context({**outer, SPAN_KEY: span, _KEY: task})
