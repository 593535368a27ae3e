"""What is relied on in OpenTelemetry's spans: attributes written in one step are as if set."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

from tracer.sdk.attributes import write

TOLD = {"text": "long text", "number": 3, "truth": True, "double": 0.5}


def made(limits: SpanLimits):
    span = TracerProvider(span_limits=limits).get_tracer("t").start_span("s")
    span.set_attribute("number", 1)
    span.set_attribute("before", "x")
    return span


@pytest.mark.parametrize(
    "limits",
    [SpanLimits(), SpanLimits(max_span_attributes=3), SpanLimits(max_span_attribute_length=4),
     SpanLimits(max_span_attributes=0)],
)  # fmt: skip
def test_written_attributes_are_those_that_setting_them_gives(limits):
    """With limits and without: the same values, and as many dropped."""
    one, other = made(limits), made(limits)
    write(one, TOLD)
    other.set_attributes(TOLD)
    assert dict(one.attributes) == dict(other.attributes)
    assert one.dropped_attributes == other.dropped_attributes


def test_an_ended_span_is_not_changed(caplog):
    """It is told in the SDK's log, as always."""
    span = made(SpanLimits())
    span.end()
    write(span, TOLD)
    assert "text" not in span.attributes
    assert "ended span" in caplog.text


def test_the_usual_way_is_not_needed_for_what_fits(monkeypatch):
    """Or the cost of it would be paid in silence after a change of the SDK."""
    span = made(SpanLimits())
    monkeypatch.setattr(type(span), "set_attributes", None)
    write(span, TOLD)
    assert span.attributes["text"] == "long text"
