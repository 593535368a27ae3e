"""Any callable as a traced one, with its signature, its kind and its behaviour kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracer.sdk.live import Live, Spec
from tracer.sdk.runtime import Runtime, active
from tracer.sdk.streams import AsyncStream, SyncStream

Begin = Callable[[Runtime, Spec, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Live]
Finish = Callable[[Live, Any], None]
PLAIN = (str, bytes, bytearray, dict, list, tuple, set, frozenset, int, float, bool, type(None))


def wrap(function: Any, spec: Spec, begin: Begin, finish: Finish, *, streams: bool) -> Any:
    """``function`` in a span; classmethods, staticmethods and callable objects too.

    ``streams``: what it gives is watched if it is a stream of some client.
    """
    if isinstance(function, classmethod | staticmethod):
        inner = wrap(function.__func__, spec, begin, finish, streams=streams)
        return type(function)(inner)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    kind: Callable[..., Any]
    if inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        kind = _generator
    elif inspect.iscoroutinefunction(called):
        kind = _coroutine
    else:
        kind = _plain
    return kind(function, spec, begin, finish, streams, inspect.isasyncgenfunction(called))


def _named(wrapper: Any, function: Any) -> Any:
    updated: tuple[str, ...] = functools.WRAPPER_UPDATES if hasattr(function, "__name__") else ()
    return functools.update_wrapper(wrapper, function, updated=updated)


def _plain(
    function: Any, spec: Spec, begin: Begin, finish: Finish, streams: bool, _a: bool
) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        runtime = active()
        live = _begin(runtime, begin, spec, function, args, kwargs)
        if live is None:
            return function(*args, **kwargs)
        token = live.enter()
        try:
            result = function(*args, **kwargs)
        except BaseException as problem:
            live.end(problem)
            raise
        finally:
            live.leave(token)
        return _given(live, result, finish, streams)

    return _named(call, function)


def _coroutine(
    function: Any, spec: Spec, begin: Begin, finish: Finish, streams: bool, _a: bool
) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        live = _begin(active(), begin, spec, function, args, kwargs)
        if live is None:
            return await function(*args, **kwargs)
        return _given(live, await _awaited(live, function(*args, **kwargs)), finish, streams)

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


def _generator(
    function: Any, spec: Spec, begin: Begin, _finish: Finish, streams: bool, is_async: bool
) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        live = _begin(active(), begin, spec, function, args, kwargs)
        made = function(*args, **kwargs)
        if live is None:
            return made
        return (AsyncStream if is_async else SyncStream)(live, made, streams)

    return _named(call, function)


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


def _given(live: Live, result: Any, finish: Finish, streams: bool) -> Any:
    """What was given: a coroutine or a stream is watched to its end, all else ends the span."""
    if inspect.isawaitable(result) and inspect.iscoroutine(result):
        return _later(live, result, finish, streams)
    if inspect.isasyncgen(result) or (streams and hasattr(result, "__anext__")):
        return AsyncStream(live, result, streams)
    if inspect.isgenerator(result) or (
        streams and hasattr(result, "__next__") and not isinstance(result, PLAIN)
    ):
        return SyncStream(live, result, streams)
    try:
        finish(live, result)
    except Exception:  # noqa: BLE001
        live.runtime.fault()
    live.end()
    return result


async def _later(live: Live, pending: Any, finish: Finish, streams: bool) -> Any:
    return _given(live, await _awaited(live, pending), finish, streams)
