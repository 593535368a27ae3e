"""Streams that a decorated function gives: each step runs inside the span, each wait outside.

A generator's span must not be current while its consumer works: the consumer's own
spans would become its children, and a detach in another task would fail. So it is made
current for each step and taken back before the item is given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from tracer import semconv
from tracer.sdk.live import Live


class _Stream:
    """Counts items and their gaps; ends the span when the stream does, however it does."""

    def __init__(self, live: Live, inner: Any, counts: bool) -> None:
        self._live = live
        self._inner = inner
        self._counts = counts
        self._items = 0
        self._last_mono_ns: int | None = None
        self._gaps: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self) -> None:
        now = self._live.runtime.clock.mono_ns()
        span = self._live.span
        self._live.note_first_item(now)
        if self._items == 0 and self._counts:
            self._live.stage_from_mono_ns = now
            span.set_attribute(semconv.FIRST_ITEM_NS, now - self._live.start_mono_ns)
        elif self._last_mono_ns is not None and len(self._gaps) < semconv.ITL_CAP:
            self._gaps.append(now - self._last_mono_ns)
        self._items += 1
        self._last_mono_ns = now

    def _end(self, problem: BaseException | None = None) -> None:
        live = self._live
        if self._counts and self._last_mono_ns is not None and live.span.is_recording():
            live.span.set_attribute(semconv.ITEMS, self._items)
            live.span.set_attribute(
                semconv.LAST_ITEM_NS, self._last_mono_ns - live.start_mono_ns
            )
            if self._gaps:
                live.span.set_attribute(semconv.ITL_NS, ",".join(map(str, self._gaps)))
                live.span.set_attribute(semconv.ITL_KIND, "chunk")
        live.end(problem)

    def __del__(self) -> None:
        self._end()


class SyncStream(_Stream, Generator[Any, Any, Any]):
    """A generator, or an iterator of a client, inside a span."""

    def __iter__(self) -> SyncStream:
        return self

    def __next__(self) -> Any:
        return self._step(lambda: next(self._inner))

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._inner.send(value))

    def throw(self, *problem: Any) -> Any:
        return self._step(lambda: self._inner.throw(*problem))

    def close(self) -> None:
        token = self._live.enter()
        try:
            if hasattr(self._inner, "close"):
                self._inner.close()
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._live.leave(token)
        self._end()

    def __enter__(self) -> SyncStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, step: Any) -> Any:
        token = self._live.enter()
        try:
            item = step()
        except StopIteration:
            self._end()
            raise
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._live.leave(token)
        self._note()
        return item


class AsyncStream(_Stream, AsyncGenerator[Any, Any]):
    """The same for asynchronous ones."""

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Any:
        return await self._step(self._inner.__anext__)

    async def asend(self, value: Any) -> Any:
        return await self._step(self._inner.asend, value)

    async def athrow(self, *problem: Any) -> Any:
        return await self._step(self._inner.athrow, *problem)

    async def aclose(self) -> None:
        token = self._live.enter()
        try:
            close = getattr(self._inner, "aclose", None) or getattr(self._inner, "close", None)
            if close is not None:
                await close()
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._live.leave(token)
        self._end()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _step(self, step: Any, *values: Any) -> Any:
        token = self._live.enter()
        try:
            item = await step(*values)
        except StopAsyncIteration:
            self._end()
            raise
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._live.leave(token)
        self._note()
        return item
