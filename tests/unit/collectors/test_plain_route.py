"""Spans that the store's engine reads by itself: the same rows, or the long way."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collectors.receive.attributes import MOST_ATTRIBUTES, NAME_LIMIT
from collectors.receive.plain import plain_spans
from collectors.receive.rows import TimeWindow, trace_batch
from collectors.receive.signals import COLUMNS
from collectors.store.errors import StoreRefused
from collectors.write.plain import PlainSpans
from tests.support.clock import FakeClock
from tests.support.otlp import pairs, request, span
from tests.unit.collectors.live_receiver import NOW

WINDOW = TimeWindow(NOW - 10**15, NOW + 10**15)
TEXT = st.text(max_size=12)
OTHERWISE_IN_JSON = {*map(chr, range(32)), "\u2028", "\u2029"} - set("\b\f\n\r\t")
LISTED = TEXT.filter(OTHERWISE_IN_JSON.isdisjoint)
NUMBER = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1),
    st.floats(0.001, 1e9), st.floats(-1e9, -0.001), st.just(0.0),
)  # fmt: skip
SCALAR = st.one_of(TEXT, NUMBER)
LIST = st.lists(st.one_of(LISTED, NUMBER), min_size=1, max_size=3)
ATTRIBUTES = st.dictionaries(TEXT, st.one_of(SCALAR, LIST), max_size=4)
IDS = st.binary(min_size=8, max_size=8).filter(any)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(NOW - 10**12, NOW))
    made = Span(
        trace_id=bytes(8) + draw(IDS), span_id=draw(IDS), name=draw(TEXT), trace_state=draw(TEXT),
        parent_span_id=draw(st.one_of(st.just(b""), IDS)), kind=draw(st.integers(0, 7)),
        start_time_unix_nano=start, end_time_unix_nano=start + draw(st.integers(0, 10**12)),
        attributes=pairs(draw(ATTRIBUTES)),
        status=Status(message=draw(TEXT), code=draw(st.integers(0, 2))),
    )  # fmt: skip
    for trace in draw(st.lists(st.sampled_from([b"", b"x", bytes(16), b"\7" * 16]), max_size=2)):
        told = pairs(draw(ATTRIBUTES))
        made.links.add(trace_id=trace, span_id=draw(IDS), trace_state=draw(TEXT), attributes=told)
    for at in draw(st.lists(st.sampled_from([0, 1, NOW, 2**63, 2**64 - 1]), max_size=2)):
        made.events.add(time_unix_nano=at, name=draw(TEXT), attributes=pairs(draw(ATTRIBUTES)))
    return made


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(spans(), min_size=1, max_size=12, unique_by=lambda s: s.span_id), ATTRIBUTES)
def test_both_routes_make_the_same_rows(store, tmp_path, some, resource):
    """Every column of every span, whatever its attributes, events and names hold."""
    store.command(f"TRUNCATE TABLE {store.database}.otel_traces")  # an example that failed left its rows
    message = request(*some, **{f"r{k}": v for k, v in resource.items()})
    body = message.SerializeToString()
    assert plain_spans(body, WINDOW) == len(some)
    PlainSpans(store, tmp_path, FakeClock()).write([(body, len(some))], uuid.uuid4().hex)
    plain = read(store)
    store.command(f"TRUNCATE TABLE {store.database}.otel_traces")
    rows = trace_batch(message, WINDOW).rows["otel_traces"]
    store.insert("otel_traces", COLUMNS["otel_traces"], rows, uuid.uuid4().hex)
    assert plain == read(store)


def read(store) -> list[dict[str, object]]:
    return store.query(
        "SELECT *, toUnixTimestamp64Nano(Timestamp) AS ns, "
        "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS ens "
        f"FROM {store.database}.otel_traces ORDER BY SpanId", {},
    )  # fmt: skip


@pytest.mark.parametrize("value", [1e300, -2.5e-7, 1e16, math.inf, -math.inf, math.nan])
def test_numbers_that_are_spelled_otherwise_are_the_same_numbers(store, tmp_path, value):
    """Very large and very small ones: read back as a number they are equal."""
    body = request(span(1, NOW, {"x": value})).SerializeToString()
    PlainSpans(store, tmp_path, FakeClock()).write([(body, 1)], "t")
    text = read(store)[0]["SpanAttributes"]["x"]
    assert float(text) == value or (math.isnan(value) and math.isnan(float(text)))


def rare(attributes: dict[str, object] | None = None, **fields: object) -> bytes:
    return request(span(1, NOW, attributes or {"ok": 1}, **fields)).SerializeToString()


def nested(value: AnyValue) -> bytes:
    made = request(span(1, NOW))
    made.resource_spans[0].scope_spans[0].spans[0].attributes.append(KeyValue(key="a", value=value))
    return made.SerializeToString()


def deep() -> AnyValue:
    made = AnyValue()
    made.array_value.values.add().array_value.values.add().int_value = 1
    return made


def pair() -> AnyValue:
    made = AnyValue()
    made.kvlist_value.values.add(key="b").value.int_value = 1
    return made


@pytest.mark.parametrize(
    "body",
    [
        rare(trace_id=bytes(16)), rare(trace_id=b"x"), rare(span_id=bytes(8)), rare(span_id=b""),
        rare(parent_span_id=b"x"), rare(parent_span_id=bytes(8)), rare(start_time_unix_nano=0),
        rare(start_time_unix_nano=NOW + 2 * 10**15), rare(end_time_unix_nano=NOW - 1),
        rare(end_time_unix_nano=2**64 - 1), b"\x0a\xff", b"not protobuf",
        rare({str(n): "x" * (1 << 20) for n in range(5)}),
    ],
)  # fmt: skip
def test_a_body_that_needs_a_rule_of_ours_is_read_in_python(body):
    """Bad ids and times, repairs, too large, damaged."""
    assert plain_spans(body, WINDOW) is None


def twice() -> bytes:
    made = span(1, NOW, {"x": 1})
    made.attributes.extend(pairs({"x": 2}))
    return request(made).SerializeToString()


GIVEN_UP = {
    "no value": nested(AnyValue()), "empty list": nested(pairs({"x": []})[0].value),
    "bytes": nested(AnyValue(bytes_value=b"x")), "pairs": nested(pair()), "list in a list": nested(deep()),
    "a key twice": twice(), "many": rare({str(n): n for n in range(MOST_ATTRIBUTES + 1)}),
    "a long name": rare(name="x" * (NAME_LIMIT + 1)), "a long key": rare({"x" * 5000: 1}),
    "a long text": rare({"x": "y" * (1 << 20) + "y"}),
    "a large resource": request(span(1, NOW), big="x" * 5000).SerializeToString(),
    "a control character in a list": nested(pairs({"x": ["a", "\x0b"]})[0].value),
    "a line separator in a list": nested(pairs({"x": ["\u2028"]})[0].value),
    "in an event": rare(events=[Span.Event(attributes=[KeyValue(key="a", value=pair())])]),
}  # fmt: skip


@pytest.mark.parametrize("what", GIVEN_UP)
def test_what_the_engine_cannot_read_is_given_up_on(engine, tmp_path, what):
    """Refused, with nothing stored and no file left, so that it goes as rows; from then on with care."""
    plain = PlainSpans(engine, tmp_path, FakeClock())
    assert plain_spans(GIVEN_UP[what], WINDOW) == 1 or what == "bytes"
    assert not plain.careful
    with pytest.raises(StoreRefused):
        plain.write([(GIVEN_UP[what], 1)], "t")
    assert plain.careful
    assert read(engine) == []
    assert [one.name for one in tmp_path.iterdir()] == ["otlp.proto"]


@pytest.mark.parametrize("what", ["bytes", "pairs", "list in a list", "in an event"])
def test_with_care_nested_attributes_are_found_before(what):
    """So that one sender's bodies do not send those of all others the long way."""
    assert plain_spans(GIVEN_UP[what], WINDOW, careful=True) is None
    assert plain_spans(rare(), WINDOW, careful=True) == 1


def test_another_number_of_spans_than_was_counted_stores_nothing(store, tmp_path):
    """What the engine reads is compared with what was acknowledged."""
    with pytest.raises(StoreRefused, match="was counted"):
        PlainSpans(store, tmp_path, FakeClock()).write([(rare(), 2)], "t")
    assert read(store) == []


def test_a_token_counts_once_and_bodies_of_several_days_are_one_insert(store, tmp_path):
    """Two bodies over three days twice under one token: each span once, also in the views."""
    days = [request(span(n + 1, NOW - n * 86_400 * 10**9, {"stagelens.record.version": 1})) for n in range(3)]
    bodies = [(one.SerializeToString(), 1) for one in days]
    for _ in range(2):
        PlainSpans(store, tmp_path, FakeClock()).write(bodies, "same")
    for table in ("otel_traces", "requests"):
        assert store.query(f"SELECT count() AS n FROM {store.database}.{table}", {})[0]["n"] == 3
    rolled = f"SELECT sum(N) AS n FROM {store.database}.requests_1m WHERE Quantity = 'e2e'"
    assert store.query(rolled, {})[0]["n"] == 3


def test_nothing_is_left_in_the_folder_a_collector_was_started_in(store, tmp_path, monkeypatch):
    """The engine keeps a schema that is told in a statement in the current folder: ours is a file."""
    (tmp_path / "here").mkdir()
    (tmp_path / "spool").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    PlainSpans(store, tmp_path / "spool", FakeClock()).write([(rare(), 1)], uuid.uuid4().hex)
    assert list((tmp_path / "here").iterdir()) == []
    assert [one.name for one in (tmp_path / "spool").iterdir()] == ["otlp.proto"]
