"""The caller's span in the threads it starts."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, MutableMapping
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from opentelemetry import propagate

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPoolExecutor(futures.ThreadPoolExecutor):
    """The standard one; each call runs in the context of whoever submitted it."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        context = contextvars.copy_context()
        return super().submit(context.run, fn, *args, **kwargs)  # type: ignore[arg-type]


def run_in_thread(
    function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> threading.Thread:
    """Start ``function`` in a thread of its own, in the caller's context; join it yourself."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(function, *args), kwargs=kwargs)
    thread.start()
    return thread


def inject(headers: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Add ``traceparent`` and ``tracestate`` of the current span to outgoing ``headers``."""
    propagate.inject(headers)
    return headers
