"""Whatever is sent, the sender is told 2xx or 4xx, and the next good request is stored."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from collectors.receive.decode import BadBody, decode
from tests.support.otlp import pairs, request, span
from tests.unit.collectors.live_receiver import NOW, LiveReceiver, live_receiver, own_database
from tracer import semconv

PATHS = ("/v1/traces", "/v1/logs", "/v1/metrics")
fresh = itertools.count(50_000)


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    with own_database(engine) as store, live_receiver(store, batch_interval_s=0.1) as made:
        yield made


def logs(*records: dict[str, object]) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    group = made.resource_logs.add()
    group.resource.attributes.extend(pairs({"service.name": "logs"}))
    scoped = group.scope_logs.add()
    for record in records:
        scoped.log_records.add(**{"time_unix_nano": NOW, **record})
    return made


def metrics() -> ExportMetricsServiceRequest:
    made = ExportMetricsServiceRequest()
    made.resource_metrics.add().scope_metrics.add()
    return made


GOOD = {
    "/v1/traces": request(span(1, NOW, {"a": [1, "x"]})), "/v1/logs": logs({}, {"severity_number": 9}),
    "/v1/metrics": metrics(),
}  # fmt: skip

# JSON of the right shape with wrong things in it: names of OTLP's fields, any values
NAMES = (
    "resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords",
    "resourceMetrics", "scopeMetrics", "metrics", "gauge", "sum", "histogram", "dataPoints",
    "asInt", "asDouble", "resource", "scope", "attributes", "key", "value", "intValue",
    "stringValue", "doubleValue", "boolValue", "bytesValue", "arrayValue", "kvlistValue",
    "values", "traceId", "spanId", "kind", "status", "code", "name", "startTimeUnixNano",
    "timeUnixNano", "flags", "severityNumber", "body", "links",
)  # fmt: skip
LEAF = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["0" * 32, "ab" * 16, "SPAN_KIND_SERVER", "\ud800", "a\0", str(NOW), 10**30])
)  # fmt: skip
TREE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)
ITEM = st.dictionaries(st.sampled_from(NAMES), TREE, max_size=5)


def shaped(path: str, items: list[object]) -> dict[str, object]:
    a, b, c = {"/v1/traces": ("resourceSpans", "scopeSpans", "spans"),
               "/v1/logs": ("resourceLogs", "scopeLogs", "logRecords"),
               "/v1/metrics": ("resourceMetrics", "scopeMetrics", "metrics")}[path]  # fmt: skip
    return {a: [{b: [{c: items}]}]}


@st.composite
def mutated(draw, path: str) -> bytes:
    """A good protobuf body with some bytes changed."""
    body = bytearray(GOOD[path].SerializeToString())
    for at in draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[at] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(1, len(body)))])


@st.composite
def sendings(draw) -> tuple[str, bytes, dict[str, str]]:
    path = draw(st.sampled_from(PATHS))
    body = draw(
        st.binary(max_size=60)
        | mutated(path)
        | (TREE | st.lists(ITEM, max_size=3).map(lambda items: shaped(path, items))).map(
            lambda tree: json.dumps(tree).encode()
        )
    )
    encoding = draw(st.sampled_from(["", "", "gzip", "deflate", "br", "identity", "x"]))
    pack = draw(st.booleans())
    if pack and encoding in ("gzip", "deflate"):
        body = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    likely = ["application/json", "application/x-protobuf"]
    kind = draw(st.sampled_from([*likely, *likely, "application/json; charset=x", "text/html", ""]))
    return path, body, {"content_type": kind, "content_encoding": encoding}


@settings(max_examples=70, deadline=None)
@given(sendings())
def test_any_bytes_are_answered_and_the_next_request_works(live, sending):
    """Any body, type and encoding: never 5xx, which a sender repeats; the counts stay whole."""
    path, body, headers = sending
    answer = live.post(body, path, **headers)
    assert 200 <= answer.status_code < 300 or 400 <= answer.status_code < 500, answer.text
    trace = next(fresh)
    good = live.post(request(span(1, NOW, trace_id=trace.to_bytes(16, "big"))))
    assert (good.status_code, good.content) == (200, b"")
    if trace % 25 == 0:
        assert len(live.spans(trace)) == 1
        for signal in live.settle().values():
            assert "store_refused" not in signal["refused"]


@settings(max_examples=70, deadline=None)
@given(st.sampled_from(PATHS), st.lists(ITEM, max_size=3))
def test_json_of_the_right_shape_is_read_or_refused_item_by_item(path, items):
    """What decode gives is a request and a count; nothing but BadBody is raised."""
    from collectors.receive.http import SIGNALS

    body = json.dumps(shaped(path, items)).encode()
    try:
        message, bad = decode(body, "application/json", SIGNALS[path].request)
    except BadBody:
        pass
    else:
        assert 0 <= bad <= len(items)
        assert message.SerializeToString() is not None


def test_logs_keep_what_they_can_and_refuse_what_they_cannot(live):
    """Strange severities and ids are held to the columns; a log without a time is refused."""
    sent = logs(
        {"severity_number": -5, "trace_id": b"\1" * 3, "span_id": b"\2" * 8, "flags": 0x1FF},
        {"severity_number": 1000, "trace_id": b"\1" * 16, "event_name": "e" * 10**5,
         "time_unix_nano": 0, "observed_time_unix_nano": NOW + 1},
        {"time_unix_nano": 0},
    )  # fmt: skip
    answer = ExportLogsServiceResponse.FromString(live.post(sent, "/v1/logs").content)
    assert answer.partial_success.rejected_log_records == 1
    rows = live.rows("SELECT * FROM {db}.otel_logs WHERE ServiceName = 'logs' AND "
                     "(SpanId != '' OR EventName != '') ORDER BY Timestamp")  # fmt: skip
    found = [(r["SeverityNumber"], r["TraceId"], r["SpanId"], r["TraceFlags"]) for r in rows]
    assert found == [(0, "", "02" * 8, 255), (255, "01" * 16, "", 0)]


@pytest.mark.parametrize(
    "spoilt",
    [{semconv.STEP_RUNNING: -1}, {semconv.STEP_RUNNING: 2**32}, {semconv.STEP_ENGINE: 2**16},
     {semconv.STEP_DURATION_NS: "soon"}, {semconv.STEP_WAITING: 1.5},
     {semconv.STEP_KV_CACHE_USAGE: float("nan")}, {semconv.STEP_KV_CACHE_USAGE: 1e300}],
)  # fmt: skip
def test_a_step_that_fits_no_column_is_refused_alone(live, spoilt):
    """The good step beside it is kept."""
    engine = next(fresh) % 60_000
    record = {"event_name": semconv.EVENT_ENGINE_STEP}
    good = {**record, "attributes": pairs({semconv.STEP_ENGINE: engine})}
    sent = logs({**record, "attributes": pairs(spoilt)}, good)
    answer = ExportLogsServiceResponse.FromString(live.post(sent, "/v1/logs").content)
    assert answer.partial_success.rejected_log_records == 1
    assert live.rows(f"SELECT count() AS n FROM {{db}}.engine_steps WHERE Engine = {engine}") == [{"n": 1}]


def test_points_that_are_not_stored_are_told_by_number(live):
    """Points without a value, or with buckets that do not fit, are rejected, never silence or 0."""
    made = metrics()
    target = made.resource_metrics[0].scope_metrics[0].metrics
    name = f"m{next(fresh)}"
    gauge = target.add(name=name).gauge.data_points
    gauge.add(time_unix_nano=NOW, as_double=float("nan"))
    gauge.add(time_unix_nano=NOW, as_int=2**63 - 1, start_time_unix_nano=2**64 - 1)
    gauge.add(time_unix_nano=NOW)
    gauge.add(time_unix_nano=NOW, flags=1)
    gauge.add(time_unix_nano=0, as_int=1)
    histogram = target.add(name="h").histogram.data_points
    histogram.add(time_unix_nano=NOW, count=1, bucket_counts=[1, 2], explicit_bounds=[1, 2, 3])
    exponential = target.add(name="e").exponential_histogram.data_points.add(time_unix_nano=NOW)
    exponential.negative.bucket_counts.extend([1] * 5000)
    target.add(name="nothing")
    answer = ExportMetricsServiceResponse.FromString(live.post(made, "/v1/metrics").content)
    assert answer.partial_success.rejected_data_points == 4
    assert answer.partial_success.error_message == (
        "rejected 4 (bad_buckets: 2, no_time: 1, no_value: 1)"
    )
    rows = live.rows(f"SELECT toString(Value) AS v, Flags AS f FROM {{db}}.otel_metrics_gauge "
                     f"WHERE MetricName = '{name}' ORDER BY v")  # fmt: skip
    assert [(r["v"], r["f"]) for r in rows] == [("0", 1), ("9223372036854776000", 0), ("nan", 0)]


def test_all_five_kinds_of_metrics_are_stored_as_they_came(live):
    """Histograms of both kinds, summaries, and exemplars with their trace."""
    made = metrics()
    target = made.resource_metrics[0].scope_metrics[0].metrics
    name = f"m{next(fresh)}"
    whole = target.add(name=name, unit="s").histogram
    whole.aggregation_temporality = 2
    point = whole.data_points.add(
        time_unix_nano=NOW, count=3, sum=4.5, min=0.5, max=2.5, bucket_counts=[1, 2],
        explicit_bounds=[1.0], attributes=pairs({"route": "/a"}), flags=0,
    )  # fmt: skip
    point.exemplars.add(time_unix_nano=NOW + 1, as_double=2.5, trace_id=b"\1" * 16, span_id=b"\2" * 8)
    curved = target.add(name=name).exponential_histogram
    curved.aggregation_temporality = 1
    bent = curved.data_points.add(time_unix_nano=NOW, count=7, sum=1.5, scale=-2, zero_count=1)
    bent.positive.offset = -3
    bent.positive.bucket_counts.extend([4, 0, 2])
    told = target.add(name=name).summary.data_points.add(time_unix_nano=NOW, count=2, sum=9)
    told.quantile_values.add(quantile=0.5, value=4)
    told.quantile_values.add(quantile=0.99, value=5)
    assert live.post(made, "/v1/metrics").content == b""

    def row(table: str) -> dict[str, object]:
        (found,) = live.rows(f"SELECT * FROM {{db}}.otel_metrics_{table} WHERE MetricName = '{name}'")
        return found

    wanted = {
        "histogram": {
            "Count": 3, "Sum": 4.5, "Min": 0.5, "Max": 2.5, "BucketCounts": [1, 2],
            "ExplicitBounds": [1.0], "AggregationTemporality": 2, "Attributes": {"route": "/a"},
            "Exemplars.Value": [2.5], "Exemplars.TraceId": ["01" * 16],
            "Exemplars.SpanId": ["02" * 8], "MetricUnit": "s",
        },
        "exp_histogram": {
            "Count": 7, "Scale": -2, "ZeroCount": 1, "PositiveOffset": -3,
            "PositiveBucketCounts": [4, 0, 2], "NegativeBucketCounts": [],
            "AggregationTemporality": 1,
        },
        "summary": {
            "Count": 2, "Sum": 9.0, "ValueAtQuantiles.Quantile": [0.5, 0.99],
            "ValueAtQuantiles.Value": [4.0, 5.0],
        },
    }  # fmt: skip
    for table, columns in wanted.items():
        found = row(table)
        assert {name: found[name] for name in columns} == columns
