"""Spans that get their attributes in one step, before any processor is told that they began.

The SDK looks at each attribute that ``start_span`` is given; for the five of a tool that is a
quarter of a raw span. Here a span is made unannounced, gets them as :func:`write` does it, and
is then announced as the SDK does: to the same processors, in the same thread, before the
application goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, Tracer, TracerProvider, sampling
from opentelemetry.trace import SpanKind

from tracer.sdk.attributes import write

_NOBODY = SpanProcessor()


class _Unannounced(Tracer):
    """Another tracer, but nobody is told that its spans began.

    The state is the other's own and no copy: what the provider changes there, such as the
    resource after a fork, holds here.
    """

    def __init__(self, made: Tracer) -> None:
        self.__dict__ = made.__dict__

    @property
    def span_processor(self) -> SpanProcessor:  # type: ignore[override]
        return _NOBODY


class Starts:
    """Begins spans for processors that look at them when they begin."""

    __slots__ = ("_fault", "_made", "_unannounced")

    def __init__(self, made: Tracer, fault: Callable[[], None] | None = None) -> None:
        self._made, self._fault = made, fault
        self._unannounced = _Unannounced(made)

    def begin(
        self, name: str, context: otel_context.Context, kind: SpanKind, told: Mapping[str, Any],
        start_unix_ns: int,
    ) -> otel.Span:  # fmt: skip
        """A span with ``told`` on it, of which the processors were told; one that is not recorded
        has neither.
        """
        span = self._unannounced.start_span(
            name, context, kind, None, None, start_unix_ns, False, False
        )
        if getattr(span, "_span_processor", None) is _NOBODY:
            processor = self._made.span_processor
            span._span_processor = processor  # type: ignore[attr-defined]  # noqa: SLF001
            write(span, told, shared=False)
            try:
                processor.on_start(span, parent_context=context)  # type: ignore[arg-type]
            except Exception:  # another's processor; the span has begun, and is told of at its end
                if self._fault is None:
                    raise
                self._fault()
        return span


def starts_of(made: object, fault: Callable[[], None] | None = None) -> Starts | None:
    """What begins spans as ``made`` does; None if that is no SDK's tracer, or of one unknown to us.

    ``fault`` is told of processors that raise when a span begins.
    """
    return Starts(made, fault) if type(made) is Tracer and _is_as_known() else None


class _Watch(SpanProcessor):
    """Notes the attributes that it sees, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def on_start(
        self, span: ReadableSpan, parent_context: otel_context.Context | None = None  # noqa: ARG002
    ) -> None:  # fmt: skip
        self.seen.append(("start", dict(span.attributes or {})))

    def on_end(self, span: ReadableSpan) -> None:
        self.seen.append(("end", dict(span.attributes or {})))


@cache
def _is_as_known() -> bool:
    """Tried once on a provider of its own, for this leans on names that the SDK does not promise."""
    watch, told = _Watch(), {"name": "value"}
    try:
        provider = TracerProvider(sampling.ALWAYS_ON, Resource.get_empty(), shutdown_on_exit=False)
        provider.add_span_processor(watch)
        made = provider.get_tracer("stagelens-trial")
        if not isinstance(made, Tracer):
            return False
        span = Starts(made).begin("trial", otel_context.Context(), SpanKind.INTERNAL, told, 1)
        span.end(2)
    except Exception:  # noqa: BLE001  whatever it is: spans are then begun the usual way
        return False
    return watch.seen == [("start", told), ("end", told)]
