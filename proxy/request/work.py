"""One retrieval or tool call that the proxy ran for a request."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.trace import SpanKind

from tracer import semconv
from tracer.clock import Anchor
from tracer.spans import AttributeValue, SpanDraft
from tracer.stages import Stage, StageInterval


@dataclass(slots=True)
class StageRun:
    """A run of ``stage`` (retrieval or tool), in nanoseconds of the monotonic clock.

    ``span_id`` was told to whoever does the work, so that its spans join this one.
    """

    stage: Stage
    name: str
    span_id: int
    start_mono_ns: int
    end_mono_ns: int | None = None
    kind: SpanKind = SpanKind.INTERNAL
    error_type: str = ""
    attributes: dict[str, AttributeValue] = field(default_factory=dict)

    def seal(self, mono_ns: int) -> None:
        """The record is made: what still runs was cut off with its request."""
        if self.end_mono_ns is None:
            self.end_mono_ns = mono_ns
            self.error_type = self.error_type or "cancelled"

    def interval(self) -> StageInterval:
        end = self.start_mono_ns if self.end_mono_ns is None else self.end_mono_ns
        return StageInterval(self.stage, self.start_mono_ns, max(end, self.start_mono_ns))

    def draft(self, parent_id: int, anchor: Anchor) -> SpanDraft:
        """The run's span."""
        interval = self.interval()
        failed = {semconv.ERROR_TYPE: self.error_type} if self.error_type else {}
        return SpanDraft(
            name=self.name,
            span_id=self.span_id,
            parent_id=parent_id,
            start_unix_ns=anchor.to_unix_ns(interval.start_ns),
            end_unix_ns=anchor.to_unix_ns(interval.end_ns),
            kind=self.kind,
            attributes={semconv.STAGE: str(self.stage), **self.attributes, **failed},
            error=bool(self.error_type),
        )
