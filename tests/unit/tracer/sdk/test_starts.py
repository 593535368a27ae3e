"""Spans that get their attributes before processors are told of them: nobody can tell the difference."""

from __future__ import annotations

import pytest
from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, Tracer, TracerProvider, sampling
from opentelemetry.trace import SpanKind, set_span_in_context

from tracer.sdk import starts
from tracer.sdk.starts import Starts, starts_of

TOLD = {"text": "value", "number": 5, "truth": True}


class Hears(SpanProcessor):
    """Notes what it is told, with what the span is at that time."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def on_start(self, span, parent_context=None) -> None:
        told = (
            span.name,
            span.kind,
            span.start_time,
            span.parent,
            dict(span.attributes),
            span.resource,
        )
        self.heard.append(("start", *told, span.is_recording(), parent_context))

    def on_end(self, span) -> None:
        self.heard.append(("end", span.name, span.start_time, span.end_time, dict(span.attributes)))


def heard_of(
    begin, provider: TracerProvider, context: otel_context.Context
) -> list[tuple[object, ...]]:
    hears = Hears()
    provider.add_span_processor(hears)
    span = begin(provider.get_tracer("some"), context)
    span.set_attribute("later", 1)
    span.end(9)
    return hears.heard


def as_usual(made: Tracer, context: otel_context.Context):
    return made.start_span("one", context, SpanKind.CLIENT, dict(TOLD), None, 7, False, False)


def ours(made: Tracer, context: otel_context.Context):
    found = starts_of(made)
    assert found is not None
    return found.begin("one", context, SpanKind.CLIENT, dict(TOLD), 7)


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("longest", [None, 3])
@pytest.mark.parametrize("sampler", [sampling.ALWAYS_ON, sampling.ALWAYS_OFF])
@pytest.mark.parametrize("below", [True, False])
def test_a_processor_hears_what_it_hears_of_a_span_begun_the_usual_way(
    most, longest, sampler, below
):
    """Also with limits, where the span is not recorded, and below another."""
    limits = SpanLimits(max_span_attributes=most, max_span_attribute_length=longest)
    context = otel_context.Context()
    if below:
        parent = TracerProvider().get_tracer("some").start_span("parent")
        context = set_span_in_context(parent, context)

    def heard(begin) -> list[tuple[object, ...]]:
        made = TracerProvider(sampler, Resource.get_empty(), span_limits=limits)
        return heard_of(begin, made, context)

    assert heard(ours) == heard(as_usual)
    assert len(heard(ours)) == (2 if sampler is sampling.ALWAYS_ON else 0)


def test_what_changes_in_the_provider_s_tracer_holds_for_both():
    """As the resource does after a fork."""
    made = TracerProvider().get_tracer("some")
    found = Starts(made)
    made.resource = Resource({"process.pid": 2})
    begun = found.begin("one", otel_context.Context(), SpanKind.INTERNAL, TOLD, 7)
    assert begun.resource.attributes == {"process.pid": 2}
    assert made.start_span("two").resource is begun.resource


def test_another_s_fault_at_the_start_is_its_caller_s_as_ever():
    """The SDK does not catch it either."""

    class Breaks(SpanProcessor):
        def on_start(self, span, parent_context=None) -> None:
            raise RuntimeError("theirs")

    provider = TracerProvider()
    provider.add_span_processor(Breaks())
    for begin in (as_usual, ours):
        with pytest.raises(RuntimeError, match="theirs"):
            begin(provider.get_tracer("some"), otel_context.Context())


def test_a_tracer_that_is_another_s_begins_its_spans_the_usual_way():
    """It may do what we do not know of."""

    class Theirs(Tracer):
        pass

    made = TracerProvider().get_tracer("some")
    made.__class__ = Theirs
    assert starts_of(made) is None
    assert starts_of(object()) is None


def test_an_sdk_that_keeps_its_processor_elsewhere_begins_its_spans_the_usual_way(monkeypatch):
    """Such as one that is yet to come: else nobody would be told of the span's end."""
    monkeypatch.setattr(
        starts._Unannounced, "span_processor", SpanProcessor()
    )  # not ours is on the span
    starts._is_as_known.cache_clear()
    assert starts_of(TracerProvider().get_tracer("some")) is None
    monkeypatch.undo()
    starts._is_as_known.cache_clear()
    assert starts_of(TracerProvider().get_tracer("some")) is not None
