"""Any callable as a traced one, with its signature, its kind and its behaviour kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from types import CoroutineType, MethodType
from typing import Any

from tracer.sdk import runtime as handle
from tracer.sdk.arguments import Arguments
from tracer.sdk.kinds import PLAIN_IDS, is_kind
from tracer.sdk.live import Live, Spec
from tracer.sdk.runtime import Runtime, active
from tracer.sdk.streams import AsyncStream, SyncStream

Begin = Callable[[Runtime, Spec, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Live]
Finish = Callable[[Live, Any], None]
_METHODS = ("cache_info", "cache_clear", "cache_parameters")
"""Of :func:`functools.lru_cache`."""


def wrap(function: Any, spec: Spec, begin: Begin, finish: Finish) -> Any:
    """``function`` in a span; classmethods, staticmethods and callable objects too.

    Raises:
        TypeError: a class; its methods can be decorated.
    """
    if inspect.isclass(function):
        raise TypeError(f"{function.__name__} is a class: decorate its methods")
    if isinstance(function, classmethod | staticmethod):
        inner = wrap(function.__func__, spec, begin, finish)
        return type(function)(inner)
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    called = function if plain else getattr(function, "__call__", function)  # noqa: B004
    spec = replace(spec, span_name=span_name(spec, function), arguments=Arguments(function))
    if spec.named:
        spec = replace(spec, attributes={**spec.attributes, spec.named: spec.name or own_name(function)})
    kind: Callable[..., Any]
    if inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        kind = _generator
    elif inspect.iscoroutinefunction(called):
        kind = _coroutine
    else:
        kind = _plain
    return kind(function, spec, begin, finish, inspect.isasyncgenfunction(called))


def span_name(spec: Spec, function: Any) -> str:
    """``{operation} {name}``, the conventions' form; the function's name where none was given."""
    told = spec.name or (own_name(function) if function is not None else "")
    return f"{spec.operation} {told}".strip() if spec.operation else told or "stage"


def own_name(function: Any) -> str:
    return str(getattr(function, "__name__", "") or type(function).__name__)


def _named(wrapper: Any, function: Any) -> Any:
    updated: tuple[str, ...] = functools.WRAPPER_UPDATES if hasattr(function, "__name__") else ()
    functools.update_wrapper(wrapper, function, updated=updated)
    for name in _METHODS:  # of a function that is no Python function
        if hasattr(function, name) and not hasattr(wrapper, name):
            setattr(wrapper, name, getattr(function, name))
    return wrapper


class _GeneratorFunction:
    """A call that is told to be a generator function, as pytest, Gradio and LangChain ask."""

    def __init__(self, call: Callable[..., Any], function: Any) -> None:
        self._call = call
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(self, name, getattr(function, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __get__(self, owner: Any, _kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __reduce__(self) -> str:
        return str(self.__dict__["__qualname__"])  # by name, as functions are


def _plain(function: Any, spec: Spec, begin: Begin, finish: Finish, _a: bool) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        runtime = handle._active  # noqa: SLF001  a call would take a third of all it costs when off
        if runtime is None:
            return function(*args, **kwargs)
        try:
            live = begin(runtime, spec, function, args, kwargs)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            runtime.fault()
            return function(*args, **kwargs)
        token = live.enter()
        try:
            result = function(*args, **kwargs)
        except BaseException as problem:
            live.end(problem)
            raise
        finally:
            live.leave(token)
        return _given(live, result, finish)

    return _named(call, function)


def _coroutine(function: Any, spec: Spec, begin: Begin, finish: Finish, _a: bool) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        live = _begin(active(), begin, spec, function, args, kwargs)
        if live is None:
            return await function(*args, **kwargs)
        return _given(live, await _awaited(live, function(*args, **kwargs)), finish)

    return _named(call, function)


async def _awaited(live: Live, pending: Any) -> Any:
    token = live.enter()
    try:
        return await pending
    except BaseException as problem:
        live.end(problem)
        raise
    finally:
        live.leave(token)


def _generator(function: Any, spec: Spec, begin: Begin, _finish: Finish, is_async: bool) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        live = _begin(active(), begin, spec, function, args, kwargs)
        if live is None:
            return made
        return (AsyncStream if is_async else SyncStream)(live, made)

    if not inspect.isfunction(function):
        return _named(call, function)
    return _named(_GeneratorFunction(call, function), function)


def _begin(
    runtime: Runtime | None, begin: Begin, spec: Spec, function: Any,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Live | None:  # fmt: skip
    if runtime is None:
        return None
    try:
        return begin(runtime, spec, function, args, kwargs)
    except Exception:  # noqa: BLE001  telemetry never breaks the application
        runtime.fault()
        return None


def _given(live: Live, result: Any, finish: Finish) -> Any:
    """What was given: a coroutine or a stream is watched to its end, all else ends the span."""
    kind = type(result)
    if id(kind) not in PLAIN_IDS:
        if issubclass(kind, CoroutineType):
            return _later(live, result, finish)
        try:
            if hasattr(kind, "_asyncio_future_blocking"):
                return _when_done(live, result, finish)
            if (stream := _stream_of(live, result, kind)) is not None:
                return stream
        except Exception:  # noqa: BLE001  a stranger's object may raise at anything
            live.runtime.fault()
    _finish(live, result, finish)
    return result


def _finish(live: Live, result: Any, finish: Finish) -> None:
    try:
        finish(live, result)
    except Exception:  # noqa: BLE001
        live.runtime.fault()
    finally:
        live.end()


def _when_done(live: Live, future: Any, finish: Finish) -> Any:
    """A task that was started is watched to its end, and stays the one that was given."""

    from asyncio import CancelledError  # the future is of it

    def done(over: Any) -> None:
        if over.cancelled():
            live.end(CancelledError())
        elif (problem := over._exception) is not None:  # noqa: SLF001  asking would count as seen
            live.end(problem)
        else:
            _finish(live, over.result(), finish)

    future.add_done_callback(done)
    return future


def _stream_of(live: Live, result: Any, kind: type) -> Any:
    """``result`` inside the span if it is a stream, or an answer with one; else None."""
    if is_kind(kind, AsyncGenerator):
        return AsyncStream(live, result)
    if is_kind(kind, Generator) or (live.spec.root and _is_lazy(kind)):
        return SyncStream(live, result)
    held = getattr(result, "__dict__", None)  # a stranger's object may have any attribute asked for
    body = held.get("body_iterator") if type(held) is dict else None
    if body is not None and hasattr(body, "__aiter__"):  # Starlette's and FastAPI's streaming answers
        result.body_iterator = AsyncStream(live, body)
        return result
    if not live.spec.from_first_item:
        return None
    if hasattr(kind, "__anext__") or hasattr(kind, "__aiter__"):
        return AsyncStream(live, result)
    return SyncStream(live, result) if hasattr(kind, "__next__") else None


def _is_lazy(kind: type) -> bool:
    """``map``, ``filter``, ``zip`` and what :mod:`itertools` makes run while they are read."""
    lazy = any(kind is one for one in (map, filter, zip, enumerate))
    return lazy or kind.__module__ == "itertools"


async def _later(live: Live, pending: Any, finish: Finish) -> Any:
    return _given(live, await _awaited(live, pending), finish)
