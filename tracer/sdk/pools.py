"""The caller's span in the processes it starts."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any, ParamSpec, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import propagate

from tracer.sdk.leaving import flush_at_end_of_child
from tracer.sdk.root import Interval, Task, current_task, with_task
from tracer.sdk.runtime import active, configure

log = logging.getLogger("stagelens.sdk")
P = ParamSpec("P")
R = TypeVar("R")
_INTERVALS = "__stagelens_intervals__"


@dataclass(frozen=True, slots=True)
class _Answer:
    result: Any
    intervals: list[Interval]


class ProcessPoolExecutor(futures.ProcessPoolExecutor):
    """The standard one; spans of its processes are below the span that submitted the call.

    The processes record as this one does: what :func:`configure` was given is given to them
    too. Where its redaction hook cannot be taken along they record no content. The stages of
    a call count in the task that submitted it. Spans leave a process when it ends or every half second.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **more: Any,
    ) -> None:
        runtime = active()
        given = _Given.of(runtime.given) if runtime is not None and runtime.given else None
        super().__init__(
            max_workers, mp_context, _begin_process, (given, initializer, initargs), **more
        )

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        if active() is None:
            return super().submit(fn, *args, **kwargs)
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        task = current_task()
        start = task.start_mono_ns if task is not None else None
        inner = super().submit(_call, carrier, start, fn, args, kwargs)
        outer: _Future[R] = _Future(inner)
        inner.add_done_callback(lambda done: _settle(done, outer, task))
        return outer


@dataclass(frozen=True, slots=True)
class _Given:
    """What :func:`configure` was given. The hook is pickled beside it, so that one that cannot
    be taken along, or cannot be found there, costs its process the content alone.
    """

    settings: Mapping[str, Any]
    redact: bytes | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _Given:
        try:
            redact = bytes(ForkingPickler.dumps(given.get("redact")))
        except Exception:  # noqa: BLE001  pickling runs what the hook says
            redact = None
        return cls({name: one for name, one in given.items() if name != "redact"}, redact)

    def there(self) -> dict[str, Any]:
        """The arguments for :func:`configure` in the new process."""
        try:
            if self.redact is not None:
                return {**self.settings, "redact": pickle.loads(self.redact)}  # noqa: S301  our parent's
        except Exception as problem:  # noqa: BLE001  its module may be another one here
            kind = type(problem).__name__
        else:
            kind = "it cannot be pickled"
        if self.settings.get("capture_content"):
            log.warning("no content is recorded in this process: its redaction is not here (%s)", kind)
        return {**self.settings, "capture_content": False}


class _Future(futures.Future[R]):
    """What the caller holds: the call's result without what came with it."""

    def __init__(self, inner: futures.Future[Any]) -> None:
        super().__init__()
        self._inner_future = inner

    def cancel(self) -> bool:
        return self._inner_future.cancel() and (self.cancelled() or super().cancel())

    def running(self) -> bool:
        return not self.done() and self._inner_future.running()


def _settle(inner: futures.Future[Any], outer: _Future[Any], task: Task | None) -> None:
    if inner.cancelled():
        if futures.Future.cancel(outer):
            outer.set_running_or_notify_cancel()
        return
    if not outer.set_running_or_notify_cancel():
        return
    problem = inner.exception()
    found = getattr(problem, _INTERVALS, []) if problem is not None else inner.result().intervals
    if task is not None:
        for interval in found:
            task.add(*interval)
    if problem is not None:
        outer.set_exception(problem)
    else:
        outer.set_result(inner.result().result)


def _begin_process(
    given: _Given | None,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> None:
    """In the new process: record as the parent does. A forked one does already."""
    if given is not None and active() is None:
        configure(**given.there())
        flush_at_end_of_child()
    if initializer is not None:
        initializer(*initargs)


def _call(
    carrier: Mapping[str, str], start_mono_ns: int | None, fn: Callable[..., Any],
    args: tuple[Any, ...], kwargs: Mapping[str, Any],
) -> _Answer:  # fmt: skip
    """In the process: ``fn`` below the caller's span. Monotonic time is the host's, so it fits."""
    context = propagate.extract(carrier, otel_context.Context())
    task = Task(start_mono_ns) if start_mono_ns is not None else None
    if task is not None:
        context = with_task(task, context)
    token = otel_context.attach(context)
    try:
        result = fn(*args, **kwargs)
    except BaseException as problem:
        if task is not None:
            _tell(problem, task)
        raise
    finally:
        otel_context.detach(token)
    return _Answer(result, task.intervals if task is not None else [])


def _tell(problem: BaseException, task: Task) -> None:
    try:
        setattr(problem, _INTERVALS, task.intervals)
    except Exception:  # noqa: BLE001  an exception that takes no attributes
        return
