"""The caller's span in the threads it starts."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPoolExecutor(futures.ThreadPoolExecutor):
    """The standard one; each call runs in the context of whoever submitted it."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        context = contextvars.copy_context()
        return super().submit(context.run, fn, *args, **kwargs)  # type: ignore[arg-type]


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` in the context of whoever calls ``carry``, in any thread and any number of them.

    For pools and threads of the standard library and others:
    ``pool.map(carry(search), queries)``, ``loop.run_in_executor(None, carry(search), query)``,
    ``Thread(target=carry(search))``.
    """
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)

    return functools.update_wrapper(run, function)


def run_in_thread(
    function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> threading.Thread:
    """Start ``function`` in a thread of its own, in the caller's context; join it yourself."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(function, *args), kwargs=kwargs)
    thread.start()
    return thread
