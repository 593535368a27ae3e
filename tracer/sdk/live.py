"""One span while it runs: begun once, ended once, current only while the code inside runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.trace import Span, SpanKind

from tracer import semconv
from tracer.sdk.arguments import Arguments
from tracer.sdk.attributes import When, below_what_is_there, write
from tracer.sdk.root import SPAN_KEY, Carries, Task, below, task_of
from tracer.sdk.runtime import FORKS, Late, Runtime
from tracer.stages import Stage

Record = Callable[[], dict[str, Any]]
_NOTHING: Mapping[str, Any] = {}
CANCELLED = frozenset(
    {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "Cancelled", "GreenletExit"}
)
"""By name: importing :mod:`asyncio` takes longer than all of the SDK. The last are trio's and gevent's."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a decorator makes: the span's kind and names, and the stage it is.

    ``from_first_item``: the stage begins with a stream's first item; without one there is
    no stage, because nobody says how the wait divides. ``output``: the attribute that takes
    the text of a stream where content is captured. ``named``: the attribute that takes the name.
    ``arguments``: what names those of the decorated function.
    """

    operation: str = ""
    stage: Stage | None = None
    kind: SpanKind = SpanKind.INTERNAL
    from_first_item: bool = False
    root: bool = False
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""
    span_name: str = ""
    named: str = ""
    arguments: Arguments = field(default_factory=Arguments)

    def __post_init__(self) -> None:
        told: dict[str, Any] = {}
        if self.operation:
            told[semconv.GEN_AI_OPERATION_NAME] = self.operation
        if self.stage is not None:
            told[semconv.STAGE] = str(self.stage)
        object.__setattr__(self, "attributes", {**told, **self.attributes})


class Live:
    """A begun span. ``end`` may be called often and from anywhere; the first call counts.

    ``within``: the context that it begins in, where that is not the current one; ``more``:
    attributes beside the spec's.
    """

    __slots__ = (
        "_begun", "_born", "_done", "_late", "_offset_ns", "context", "outer", "owner", "runtime", "span",
        "spec", "stage_from_mono_ns", "stage_until_mono_ns", "start_mono_ns", "stopped_early", "task",
        "told",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, spec: Spec, name: str, within: otel_context.Context | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.runtime, self.spec = runtime, spec
        self.start_mono_ns = start = runtime.clock.mono_ns()
        self._done = self.stopped_early = False
        self._born = FORKS[0]
        self.stage_from_mono_ns: int | None = None
        self.stage_until_mono_ns: int | None = None
        self.outer = otel_context.get_current() if within is None else within
        outer_task = task_of(self.outer)
        self.task = Task(start) if outer_task is None and spec.root else None
        self.owner = outer_task
        if self.task is not None:
            self.owner = self.task
            runtime.place(start)
        late = runtime.late
        when = late.when() if late is not None else When.BEFORE_START
        self._late: Late | None = late if when is When.NEVER else None
        told: Mapping[str, Any] = {**spec.attributes, **more} if more else spec.attributes
        self._begun = told if when > When.AT_START else _NOTHING
        self.told: dict[str, Any] = {}
        self._offset_ns = runtime.offset_ns
        starts = late.starts if late is not None and told and when is When.AT_START else None
        self.span: Span = (
            starts.begin(name, self.outer, spec.kind, told, start + self._offset_ns)
            if starts is not None
            else runtime.tracer.start_span(
                name, self.outer, spec.kind, told if when is When.BEFORE_START else None, None,
                start + self._offset_ns, False, False,
            )
        )  # fmt: skip
        self.context = below(self.outer, self.span, self.task)

    def enter(self) -> object:
        """Make it current; give the token to :meth:`leave` in the same step."""
        return otel_context.attach(self.context)

    def leave(self, token: Any) -> None:
        """Make current what was. In another task or thread than :meth:`enter`, only if it is."""
        try:
            token.var.reset(token)
        except AttributeError:  # OTEL_PYTHON_CONTEXT names another implementation
            otel_context.detach(token)
        except (ValueError, RuntimeError):
            if otel_context.get_current() is self.context:
                otel_context.attach(self.outer)

    def is_around(self, current: otel_context.Context) -> bool:
        """Whether ``current`` is of the code inside, and not of one that only drops a generator."""
        if current is self.context:
            return True
        span = current.get(SPAN_KEY)
        if span is self.span:
            return True
        above = getattr(span, "parent", None)  # something inside was left current
        return above is not None and above == self.span.get_span_context()

    def note_item(self, mono_ns: int, carries: Carries, *, of_model: bool) -> None:
        """An item of its stream: the first-token clocks of the task stop."""
        if self.task is not None:
            self.task.note_item(mono_ns, carries)
        if of_model and self.owner is not None and carries:
            self.owner.note_token(mono_ns, carries)

    @property
    def is_over(self) -> bool:
        return self._done

    def end(self, problem: BaseException | None = None, mono_ns: int | None = None) -> None:
        """End it, at ``mono_ns`` if not now; a cancelled or left call is no error. Never raises."""
        if self._done:
            return
        self._done = True
        if self._born != FORKS[0]:  # begun by the process that this one was forked from
            return
        try:
            now = self.runtime.clock.mono_ns() if mono_ns is None else mono_ns
            if problem is None:
                self.finish("ok", "", now)
                return
            self.stopped_early = self.stopped_early or isinstance(problem, GeneratorExit)
            self.finish(*outcome_of(problem), now)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            self.runtime.fault()

    def finish(self, status: str, kind: str, now: int, *, failed: bool | None = None) -> None:
        """Write what is known at the end, and end the span at ``now``.

        ``failed``: whether the span's own status says so, where that is not the record's.
        """
        self._done = True
        span, spec = self.span, self.spec
        told = self.told
        if status == "error":
            told[semconv.ERROR_TYPE] = kind
        if status == "error" if failed is None else failed:
            span.set_status(otel.StatusCode.ERROR)
        if self.stopped_early:
            told[semconv.STOPPED_EARLY] = True
        begun = self.stage_from_mono_ns if spec.from_first_item else self.start_mono_ns
        if spec.stage is not None and self.owner is not None and begun is not None:
            self.owner.add(spec.stage, begun, self.stage_until_mono_ns or now)
        if span.is_recording():
            task = self.task
            record = None if task is None else self._record_maker(task, kind, status, now)
            self._write(told, record)
        span.end(now + self._offset_ns)

    def _record_maker(self, task: Task, kind: str, status: str, now: int) -> Record:
        """What makes the task's record."""
        if kind:
            self.told[semconv.ERROR_TYPE] = kind
        task.closed = True
        return partial(task.record, now, status)

    def _write(self, told: dict[str, Any], record: Record | None) -> None:
        """On the span; or beside it, where only the sending thread looks."""
        late = self._late
        if late is not None and late.when() is When.NEVER:
            late.keep(self.span.get_span_context().span_id, self._begun, told, record)
            return
        if self._begun:
            told = below_what_is_there(self._begun, getattr(self.span, "attributes", None), told)
        if record is not None:
            told = {**told, **record()} if told else record()
        if told:
            write(self.span, told)


def is_cancelled(problem: BaseException) -> bool:
    return not CANCELLED.isdisjoint(kind.__name__ for kind in type(problem).__mro__)


def outcome_of(problem: BaseException | None) -> tuple[str, str]:
    """The record's status and the kind of error; the text of an error is never looked at."""
    if problem is None or isinstance(problem, StopIteration | StopAsyncIteration):
        return "ok", ""  # the latter is how an iterator's method says that it is at its end
    if isinstance(problem, SystemExit) and problem.code in (None, 0):
        return "ok", ""
    kinds = [kind.__name__ for kind in type(problem).__mro__]
    return ("error" if CANCELLED.isdisjoint(kinds) else "cancelled"), kinds[0]
