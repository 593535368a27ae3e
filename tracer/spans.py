"""Finished spans, built from known start and end times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

AttributeValue = str | bool | int | float | Sequence[str]


@dataclass(frozen=True, slots=True)
class SpanDraft:
    """A span whose times are already known; ``events`` are (name, unix ns, attributes).

    ``links`` are (trace id, span id, attributes).
    """

    name: str
    span_id: int
    parent_id: int | None
    start_unix_ns: int
    end_unix_ns: int
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    events: Sequence[tuple[str, int, Mapping[str, AttributeValue]]] = ()
    links: Sequence[tuple[int, int, Mapping[str, AttributeValue]]] = ()
    error: bool = False
    remote_parent: bool = False


def to_readable(
    draft: SpanDraft, trace_id: int, resource: Resource, scope: InstrumentationScope
) -> ReadableSpan:
    """The SDK's form of ``draft``, which every OpenTelemetry exporter takes."""
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = (
        None
        if draft.parent_id is None
        else SpanContext(trace_id, draft.parent_id, draft.remote_parent, flags)
    )
    return ReadableSpan(
        name=draft.name,
        context=SpanContext(trace_id, draft.span_id, False, flags),
        parent=parent,
        resource=resource,
        attributes=dict(draft.attributes),
        events=[Event(name, dict(attrs), at) for name, at, attrs in draft.events],
        kind=draft.kind,
        status=Status(StatusCode.ERROR if draft.error else StatusCode.UNSET),
        start_time=draft.start_unix_ns,
        end_time=draft.end_unix_ns,
        instrumentation_scope=scope,
    )
