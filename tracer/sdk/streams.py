"""Streams that a decorated function gives: each step runs inside the span, each wait outside.

A generator's span must not be current while its consumer works: the consumer's own
spans would become its children, and a detach in another task would fail. So it is made
current for each step and taken back before the item is given. What the generator's own code
has made current at its ``yield`` is kept aside and is current again in its next step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from opentelemetry import context as otel_context

from tracer import semconv
from tracer.sdk.content import StreamText
from tracer.sdk.items import carries_of, usage_of
from tracer.sdk.live import Live, is_cancelled


class _Stream:
    """Counts items and their gaps; ends the span when the stream does, however it does."""

    def __init__(self, live: Live, inner: Any) -> None:
        self._live = live
        self._inner = inner
        self._items = 0
        self._last_mono_ns: int | None = None
        self._gaps: list[int] = []
        self._usage: dict[str, int] = {}
        runtime = live.runtime
        captured = runtime.capture_content and live.spec.output and live.span.is_recording()
        self._cut_off_mono_ns: int | None = None
        self._text = StreamText(runtime.content_limit) if captured else None

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # of one that is being copied; a generator cannot be
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __reduce__(self) -> str:
        raise TypeError("a stream cannot be copied or pickled")

    def _leave(self, token: Any) -> None:
        """Keep what the generator left current for its next step."""
        live = self._live
        found = otel_context.get_current()
        live.leave(token)
        live.context = found

    def _note(self, item: Any) -> None:
        try:
            self._note_item(item)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            self._live.runtime.fault()

    def _note_item(self, item: Any) -> None:
        live = self._live
        now = live.runtime.clock.mono_ns()
        self._cut_off_mono_ns = None
        counts = live.spec.from_first_item
        carries = carries_of(item)
        live.note_item(now, carries, of_model=counts or live.spec.root)
        if self._text is not None:
            self._text.add(item)
        if counts and (usage := usage_of(item)):
            self._usage.update(usage)  # of several the last is right, for they are totals
        if counts and carries:  # a role, a count or a sign of life is no token
            self._note_token(now)

    def _note_token(self, now: int) -> None:
        live = self._live
        if self._items == 0:
            live.stage_from_mono_ns = now
            live.span.set_attribute(semconv.FIRST_ITEM_NS, now - live.start_mono_ns)
        elif self._last_mono_ns is not None and len(self._gaps) < semconv.ITL_CAP:
            self._gaps.append(now - self._last_mono_ns)
        self._items += 1
        self._last_mono_ns = live.stage_until_mono_ns = now

    def _failed(self, problem: BaseException) -> None:
        """A step raised: a generator is then over, and another iterator where it was not cut off.

        One that is read with a time limit goes on after it.
        """
        inner: Any = self
        while isinstance(inner, _Stream):
            inner = inner.__dict__.get("_iterator") or inner._inner  # noqa: SLF001
        if isinstance(inner, Generator | AsyncGenerator) or not is_cancelled(problem):
            self._end(problem)
        else:
            self._cut_off_mono_ns = self._live.runtime.clock.mono_ns()

    def _end(
        self, problem: BaseException | None = None, *, early: bool = False, mono_ns: int | None = None
    ) -> None:
        live = self._live
        try:
            live.stopped_early = live.stopped_early or early
            if live.span.is_recording():
                self._write()
        except Exception:  # noqa: BLE001
            live.runtime.fault()
        live.end(problem, mono_ns)

    def _write(self) -> None:
        live = self._live
        if self._text is not None:
            self._text.note(live.runtime, live.span, live.spec.output)
        told: dict[str, Any] = dict(self._usage)
        if live.spec.from_first_item and self._last_mono_ns is not None:
            told[semconv.ITEMS] = self._items
            told[semconv.LAST_ITEM_NS] = self._last_mono_ns - live.start_mono_ns
        if self._gaps:
            told[semconv.ITL_NS] = ",".join(map(str, self._gaps))
            told[semconv.ITL_KIND] = "chunk"
        if told:
            live.span.set_attributes(told)

    def _let_go(self) -> None:
        """Drop what is inside, in its own context: it may run its last lines now.

        Elsewhere they would make the ended span current for whoever is at work. It is not closed,
        for others may hold it.
        """
        token = self._live.enter()
        try:
            del self._inner
            self.__dict__.pop("_iterator", None)
        finally:
            self._live.leave(token)

    def __del__(self) -> None:
        if "_text" not in self.__dict__:  # it was never whole
            return
        if self._live.is_over:
            return
        self._let_go()
        if self._cut_off_mono_ns is None:
            self._end(early=True)
        else:
            self._end(_cancelled(), early=True, mono_ns=self._cut_off_mono_ns)


class SyncStream(_Stream, Generator[Any, Any, Any]):
    """A generator, or an iterator of a client, inside a span."""

    def __iter__(self) -> SyncStream:
        return self

    def __next__(self) -> Any:
        return self._step(next, self._inner)

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *problem: Any) -> Any:
        return self._step(self._inner.throw, *problem)

    def close(self) -> Any:
        """Close what is inside; what that gives, which of a generator is its value (Python 3.13)."""
        given, token = None, self._live.enter()
        try:
            if hasattr(self._inner, "close"):
                given = self._inner.close()
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._leave(token)
        self._end(early=True)
        return given

    def __enter__(self) -> SyncStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, step: Any, *values: Any) -> Any:
        token = self._live.enter()
        try:
            item = step(*values)
        except StopIteration:
            self._end()
            raise
        except BaseException as problem:
            self._failed(problem)
            raise
        finally:
            self._leave(token)
        self._note(item)
        return item


class AsyncStream(_Stream, AsyncGenerator[Any, Any]):
    """The same for asynchronous ones."""

    def __init__(self, live: Live, inner: Any) -> None:
        super().__init__(live, inner)
        self._iterator = inner if hasattr(inner, "__anext__") else None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self.aclose if name == "close" else found

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Any:
        if self._iterator is None:
            self._iterator = aiter(self._inner)
        return await self._step(self._iterator.__anext__)

    async def asend(self, value: Any) -> Any:
        return await self._step(self._inner.asend, value)

    async def athrow(self, *problem: Any) -> Any:
        return await self._step(self._inner.athrow, *problem)

    async def aclose(self) -> None:
        inner = self._inner if self._iterator is None else self._iterator
        token = self._live.enter()
        try:
            close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
            if close is not None:
                await close()
        except BaseException as problem:
            self._end(problem)
            raise
        finally:
            self._leave(token)
        self._end(early=True)

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
            self._failed(problem)
            raise
        finally:
            self._leave(token)
        self._note(item)
        return item


def _cancelled() -> BaseException:
    from asyncio import CancelledError  # as in wrap

    return CancelledError()
