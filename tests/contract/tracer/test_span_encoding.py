"""Our own span encoding says what OpenTelemetry's encoder says of the same spans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind

from tracer.otlp import PARENT_IS_REMOTE, SAMPLED_LOCAL, spans_body, spans_of
from tracer.spans import SpanDraft, to_readable

RESOURCE = Resource({"service.name": "s", "n": 1, "list": ["a", "b"]})
KEYS = st.text(min_size=1, max_size=5).filter(lambda k: k.isprintable() and k.strip())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = (
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False) | st.lists(TEXT, max_size=3)
)  # fmt: skip
NANOS = st.integers(1, 2**62)
DRAFTS = st.builds(
    SpanDraft, name=TEXT, span_id=st.integers(1, 2**64 - 1),
    parent_id=st.none() | st.integers(1, 2**64 - 1), start_unix_ns=NANOS, end_unix_ns=NANOS,
    kind=st.sampled_from(SpanKind), attributes=st.dictionaries(KEYS, VALUES, max_size=4),
    events=st.lists(st.tuples(TEXT, NANOS, st.dictionaries(KEYS, TEXT, max_size=2)), max_size=2),
    error=st.booleans(), remote_parent=st.booleans(),
)  # fmt: skip


def ours(trace_id: int, drafts: list[SpanDraft]) -> ExportTraceServiceRequest:
    body = spans_body(RESOURCE, "scope", spans_of(trace_id, drafts))
    return ExportTraceServiceRequest.FromString(body)


@given(st.integers(1, 2**128 - 1), st.lists(DRAFTS, max_size=3))
def test_any_spans_are_encoded_as_the_sdks_encoder_does(trace_id, drafts):
    """Ids, kinds, times, attributes of every type, events, status and resource are equal."""
    scope = InstrumentationScope("scope")
    theirs = encode_spans([to_readable(d, trace_id, RESOURCE, scope) for d in drafts])
    made = ours(trace_id, drafts)
    for span, draft in zip(made.resource_spans[0].scope_spans[0].spans, drafts, strict=True):
        known = SAMPLED_LOCAL | (PARENT_IS_REMOTE if draft.remote_parent else 0)
        assert span.flags == known
    if drafts:
        for message in (made, theirs):
            for span in message.resource_spans[0].scope_spans[0].spans:
                span.flags = 0  # the SDK's encoder leaves the sampled bit out in some versions
                if not span.status.code:
                    span.ClearField("status")
        assert made == theirs


def test_a_text_that_utf_8_cannot_say_does_not_cost_the_span():
    """A lone surrogate, as JSON may hold one, is replaced."""
    made = ours(1, [SpanDraft("\ud800", 1, None, 1, 2, attributes={"model": "m\ud800"})])
    [span] = made.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.attributes[0].value.string_value) == ("?", "m?")
