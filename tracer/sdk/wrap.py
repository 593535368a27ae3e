"""Any callable as a traced one, with its signature, its kind and its behaviour kept."""

from __future__ import annotations

import functools
import inspect
import sys
import types
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
    if _is_awaited(called):
        kind = _generator_coroutine
    elif inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        kind = _generator
    elif inspect.iscoroutinefunction(called):
        kind = _coroutine
    else:
        kind = _plain
    return kind(function, spec, begin, finish, inspect.isasyncgenfunction(called))


def _is_awaited(called: Any) -> bool:
    """Whether it is a generator function that :func:`types.coroutine` made a coroutine's."""
    while isinstance(called, functools.partial):
        called = called.func
    flags = getattr(getattr(called, "__code__", None), "co_flags", 0)
    return isinstance(flags, int) and bool(flags & inspect.CO_ITERABLE_COROUTINE)


def span_name(spec: Spec, function: Any) -> str:
    """``{operation} {name}``, the conventions' form; the function's name where none was given."""
    told = spec.name or (own_name(function) if function is not None else "")
    return f"{spec.operation} {told}".strip() if spec.operation else told or "stage"


def own_name(function: Any) -> str:
    return str(getattr(function, "__name__", "") or type(function).__name__)


def _named(wrapper: Any, function: Any) -> Any:
    if not _is_bound_by_classes(function):
        wrapper = _Unbound(wrapper)
    updated: tuple[str, ...] = functools.WRAPPER_UPDATES if hasattr(function, "__name__") else ()
    functools.update_wrapper(wrapper, function, updated=updated)
    for name in _METHODS:  # of a function that is no Python function
        if hasattr(function, name) and not hasattr(wrapper, name):
            setattr(wrapper, name, getattr(function, name))
    return wrapper


def _is_bound_by_classes(function: Any) -> bool:
    """Whether a class that holds it hands its object over; 3.13 only warns that partials will be."""
    if isinstance(function, functools.partial):
        return sys.version_info >= (3, 14)
    return hasattr(type(function), "__get__") and not isinstance(function, MethodType)


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


class _Unbound:
    """A call that no class binds, as of partials, objects, builtins and bound methods."""

    __slots__ = ("__dict__", "__weakref__", "_call")

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        for name in ("__code__", "__defaults__", "__kwdefaults__"):  # tell its kind
            setattr(self, name, getattr(call, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


def _plain(function: Any, spec: Spec, begin: Begin, finish: Finish, _a: bool) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        runtime = handle._active  # noqa: SLF001  a call would take a third of all it costs when off
        if runtime is None:
            return function(*args, **kwargs)
        try:
            live = begin(runtime, spec, function, args, kwargs)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            runtime.lose()
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


def _generator_coroutine(
    function: Any, spec: Spec, begin: Begin, finish: Finish, _a: bool
) -> Any:
    """Of :func:`types.coroutine`: what it gives is awaited, and is a generator to others."""

    @types.coroutine
    def call(*args: Any, **kwargs: Any) -> Any:
        live = _begin(active(), begin, spec, function, args, kwargs)
        if live is None:
            return (yield from function(*args, **kwargs))
        return _given(live, (yield from _awaited(live, function(*args, **kwargs)).__await__()), finish)

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
    kind: Any = AsyncStream if is_async else SyncStream

    def call(*args: Any, **kwargs: Any) -> Any:
        runtime = active()
        if runtime is None:
            return function(*args, **kwargs)
        stream = kind.__new__(kind)  # before the generator: a collector asks the older one first
        made = function(*args, **kwargs)
        live = _begin(runtime, begin, spec, function, args, kwargs)
        if live is None:
            return made
        stream.__init__(live, made)
        return stream

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
        runtime.lose()
        return None


def _given(live: Live, result: Any, finish: Finish) -> Any:
    """What was given: a coroutine or a stream is watched to its end, all else ends the span."""
    kind = type(result)
    if id(kind) not in PLAIN_IDS:
        if issubclass(kind, CoroutineType):
            return _later(_Pending(live, result), finish)
        try:
            if hasattr(kind, "_asyncio_future_blocking"):
                return _when_done(live, result, finish)
            if (stream := _stream_of(live, result, kind, finish)) is not None:
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


def _stream_of(live: Live, result: Any, kind: type, finish: Finish) -> Any:
    """``result`` inside the span if it is a stream, or an answer with one; else None."""
    if is_kind(kind, AsyncGenerator):
        return AsyncStream(live, result)
    if is_kind(kind, Generator) and inspect.isawaitable(result):
        return _later(_Pending(live, result), finish)
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


class _Pending:
    """A coroutine that was given: its span also ends where it is never begun."""

    __slots__ = ("coroutine", "live")

    def __init__(self, live: Live, coroutine: Any) -> None:
        self.live, self.coroutine = live, coroutine

    def __del__(self) -> None:
        if self.live.is_over or self.coroutine is None:
            return
        if sys.getrefcount(self.coroutine) <= _ONLY_OURS:
            self.coroutine.close()  # as the one was that stands for it
        self.live.end(GeneratorExit())


_ONLY_OURS = 2
"""References to what an attribute alone holds while they are counted."""


async def _later(pending: _Pending, finish: Finish) -> Any:
    live, coroutine, pending.coroutine = pending.live, pending.coroutine, None
    return _given(live, await _awaited(live, coroutine), finish)
