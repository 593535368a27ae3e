"""One span while it runs: begun once, ended once, current only while the code inside runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.trace import Span, SpanKind

from tracer import semconv
from tracer.sdk.root import Task, current_task, with_task
from tracer.sdk.runtime import Runtime
from tracer.stages import Stage

CANCELLED = (asyncio.CancelledError, GeneratorExit)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a decorator makes: the span's kind and names, and the stage it is.

    ``from_first_item``: the stage begins with a stream's first item; without one there is
    no stage, because nobody says how the wait divides.
    """

    operation: str = ""
    stage: Stage | None = None
    kind: SpanKind = SpanKind.INTERNAL
    from_first_item: bool = False
    root: bool = False
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Live:
    """A begun span. ``end`` may be called often and from anywhere; the first call counts."""

    __slots__ = (
        "_done", "_owner", "context", "runtime", "span", "spec", "stage_from_mono_ns",
        "start_mono_ns", "task",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, spec: Spec, name: str) -> None:
        self.runtime, self.spec = runtime, spec
        self.start_mono_ns = runtime.clock.mono_ns()
        self._done = False
        outer = current_task()
        self.task = Task(self.start_mono_ns) if outer is None and spec.root else None
        self._owner = self.task or outer
        self.stage_from_mono_ns: int | None = None
        self.span: Span = runtime.tracer.start_span(
            name, kind=spec.kind, start_time=runtime.anchor.to_unix_ns(self.start_mono_ns),
            record_exception=False, set_status_on_exception=False,
        )  # fmt: skip
        context = otel.set_span_in_context(self.span)
        self.context = with_task(self.task, context) if self.task is not None else context
        if self.span.is_recording():
            if spec.operation:
                self.span.set_attribute(semconv.GEN_AI_OPERATION_NAME, spec.operation)
            if spec.stage is not None:
                self.span.set_attribute(semconv.STAGE, str(spec.stage))
            for key, value in spec.attributes.items():
                self.span.set_attribute(key, value)

    def enter(self) -> object:
        """Make it current; give the token to :meth:`leave` in the same step."""
        return otel_context.attach(self.context)

    def leave(self, token: Any) -> None:
        otel_context.detach(token)

    def note_first_item(self, mono_ns: int) -> None:
        """Something reached whoever waits for the task: its first-token clock stops."""
        if self.task is not None and self.task.first_item_mono_ns is None:
            self.task.first_item_mono_ns = mono_ns

    def end(self, problem: BaseException | None = None) -> None:
        """End it; a cancelled or left call is no error. Never raises."""
        if self._done:
            return
        self._done = True
        try:
            self._end(problem)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            self.runtime.fault()

    def _end(self, problem: BaseException | None) -> None:
        now = self.runtime.clock.mono_ns()
        stage, status, kind = self.spec.stage, "ok", ""
        if isinstance(problem, CANCELLED):
            status, kind = "cancelled", type(problem).__name__
        elif problem is not None:
            status, kind = "error", type(problem).__name__
        if kind and status == "error":
            self.span.set_attribute(semconv.ERROR_TYPE, kind)
            self.span.set_status(otel.StatusCode.ERROR)
        begun = self.stage_from_mono_ns if self.spec.from_first_item else self.start_mono_ns
        if stage is not None and self._owner is not None and begun is not None:
            self._owner.add(stage, begun, now)
        if self.task is not None:
            self.task.write(self.span, now, status, kind if status != "ok" else "")
        self.span.end(end_time=self.runtime.anchor.to_unix_ns(now))

