"""Python functions by import path, run so that none can hold up the event loop."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.errors import ProxyError
from proxy.pipelines.problems import StageProblem

MOST_THREADS = 32
"""Calls of one tool's or retriever's plain function at once; one that hangs keeps its thread until
it returns."""
MOST_OF_ALL = 256
"""Such calls of all functions together."""
CANCEL_S = 0.2
"""What a cancelled coroutine gets to end in order."""


def load(path: str) -> Callable[..., Any]:
    """The function at ``module:name``.

    Raises:
        ProxyError: there is none, or its module fails.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as problem:  # noqa: BLE001  a stranger's module raises anything
        raise ProxyError(
            f"function {path} cannot be imported ({type(problem).__name__}: {problem}): "
            "check the path and PYTHONPATH"
        ) from None
    if not callable(found):
        raise ProxyError(f"{path} is no function: name one")
    return found  # type: ignore[no-any-return]


def from_env(names: Mapping[str, str]) -> dict[str, str]:
    """The values of environment variables under other names.

    Raises:
        ProxyError: one is not set; only its name is told.
    """
    for key, variable in names.items():
        if variable not in os.environ:
            raise ProxyError(f"{_told(key, variable)} is not set: set it before the start")
    return {key: os.environ[variable] for key, variable in names.items()}


def headers_from_env(names: Mapping[str, str]) -> dict[str, str]:
    """Header values from environment variables, by header.

    Raises:
        ProxyError: one is not set, or holds what no header can; only its name is told.
    """
    found = from_env(names)
    for key, value in found.items():
        what = _told(key, names[key])
        if not value.strip():
            raise ProxyError(f"{what} is empty: set it before the start")
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise ProxyError(
                f"{what} holds a line end, an outer space or another character that a header "
                "cannot hold: set it without"
            )
    return found


def _told(key: str, variable: str) -> str:
    """The variable by its name, unless that does not look like one and may be a secret itself."""
    name = variable if variable == variable.upper() else f"that {key} names"
    return f"environment variable {name}"


async def _kept(work: Awaitable[Any]) -> Any:  # noqa: ANN401
    """What ``work`` gives; what would end the event loop, and with it the server, is kept here."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as raised:
        raise _failed(raised) from None


def _name_of(work: Awaitable[Any]) -> str:
    """The function's, where ``work`` is its coroutine."""
    name = getattr(work, "__qualname__", type(work).__name__)
    frame = getattr(work, "cr_frame", None)
    return name if frame is None else f"{frame.f_globals.get('__name__')}:{name}"


def _failed(raised: BaseException) -> StageProblem:
    name = type(raised).__name__
    return StageProblem(name, f"it failed: {name}")


@dataclass(slots=True)
class _Running:
    """Threads of all functions."""

    count: int = 0


class Callables:
    """Runs functions: coroutines on the loop, plain ones in daemon threads.

    Daemon threads, because a function that hangs must not keep the process from ending.
    """

    def __init__(self, all_: _Running | None = None) -> None:
        """``all_`` counts what runs of others too; see :meth:`own`."""
        self._all = all_ or _Running()
        self._running = 0
        self._left: set[asyncio.Task[Any]] = set()

    def own(self) -> Callables:
        """For one function: with bounds of its own, so that no other is busy when it hangs."""
        return Callables(self._all)

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What ``function`` returns or raises; what it raises is an ``Exception`` in any case."""
        if inspect.iscoroutinefunction(function):
            return await self._contained(function(*args, **kwargs))
        value = await self._in_thread(function, args, kwargs)
        return await self._contained(value) if inspect.isawaitable(value) else value

    async def _contained(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401
        """What ``work`` gives. One that catches its cancel is left behind, as a function that
        hangs is: the request ends all the same.
        """
        if len(self._left) >= MOST_THREADS:
            if inspect.iscoroutine(work):
                work.close()
            raise StageProblem("busy", f"{MOST_THREADS} coroutines cannot be ended: try again later")
        task = asyncio.create_task(_kept(work), name=f"function {_name_of(work)}")
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            self._left.add(task)
            task.add_done_callback(self._ended)
            await asyncio.wait({task}, timeout=CANCEL_S)
            raise
        return task.result()

    def _refuse_beyond(self) -> None:
        """Raises :class:`StageProblem` where no more may run."""
        if self._running >= MOST_THREADS:
            raise StageProblem("busy", f"{MOST_THREADS} calls of it are running: try again later")
        if self._all.count >= MOST_OF_ALL:
            raise StageProblem("busy", f"{MOST_OF_ALL} functions are running: try again later")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it, and its text stands in no log

    async def _in_thread(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        self._refuse_beyond()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._running += 1
        self._all.count += 1

        def finish(value: Any, problem: Exception | None) -> None:  # noqa: ANN401
            self._running -= 1
            self._all.count -= 1
            if done.done():
                return
            if problem is not None:
                done.set_exception(problem)
            else:
                done.set_result(value)

        def work() -> None:
            value: Any = None
            problem: Exception | None = None
            try:
                value = function(*args, **kwargs)
            except StopIteration:  # a future cannot carry it
                problem = RuntimeError("StopIteration")
            except Exception as raised:  # noqa: BLE001  handed to the waiter
                problem = raised
            except BaseException as raised:  # noqa: BLE001  sys.exit() ends no thread unseen
                problem = _failed(raised)
            try:
                loop.call_soon_threadsafe(finish, value, problem)
            except RuntimeError:
                return  # the loop is closed: nobody waits

        threading.Thread(target=work, daemon=True, name="stagelens-function").start()
        return await done
