"""What becomes of spans: ids, times, kinds, values, and what is refused alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collectors.receive.attributes import attribute_map
from tests.support.otlp import pairs, request, span
from tests.unit.collectors.live_receiver import (
    DAY,
    NOW,
    SECOND,
    LiveReceiver,
    live_receiver,
    own_database,
)
from tests.unit.collectors.spans import fresh, json_request, json_span, one, rejected

LIMIT = 1 << 20
BASE64_ID = "W47/95gDgQPSabYzgT/GDA=="


@pytest.fixture(scope="module")
def live(engine) -> Iterator[LiveReceiver]:
    """One receiver for all tests here; each uses a trace id of its own."""
    with own_database(engine) as store, live_receiver(store, max_body_bytes=LIMIT) as made:
        yield made


def test_ids_in_json_are_hex_and_bad_ones_refuse_their_span_alone(live):
    """Lower and upper case are one id; base64, short and zero ids are refused (faults 68)."""
    trace = 0x5B8EFFF798038103D269B633813FC60C
    ids = [f"{trace:032x}", f"{trace:032X}", BASE64_ID, "ab" * 15, "0" * 32, "zz" * 16, "", 7]
    spans = [{**json_span(1, n + 1), "traceId": bad} for n, bad in enumerate(ids)]
    answer = live.post_json(json_request(*spans, json_span(trace, 77, spanId="0" * 16)))
    assert rejected(answer) == 7
    assert "bad_trace_id: 5" in answer.json()["partialSuccess"]["errorMessage"]
    assert [int(row["SpanId"], 16) for row in live.spans(trace)] == [1, 2]


@pytest.mark.parametrize("bad", [bytes(16), bytes(32), b"\1" * 32, b"\1" * 15, b""])
def test_a_bad_trace_id_in_protobuf_refuses_its_span(live, bad):
    """16 bytes that are not all zero, or it is not stored."""
    assert rejected(live.post(request(span(1, NOW, trace_id=bad)))) == 1


def test_links_and_parents_have_hex_ids_too(live):
    """Links keep their ids; a wrong parent is noted, since its span looks like a root."""
    trace = next(fresh)
    link = {"traceId": f"{trace:032X}", "spanId": "00000000000000AB"}
    bad = {"traceId": BASE64_ID, "spanId": "xyz"}
    live.post_json(json_request(
        json_span(trace, 1, links=[link, bad], parentSpanId="00000000000000FF"),
        json_span(trace, 2, parentSpanId="nonsense"),
        json_span(trace, 3, parentSpanId=""),
    ))  # fmt: skip
    first, second, third = live.spans(trace)
    assert first["Links.TraceId"] == [f"{trace:032x}", ""]
    assert first["Links.SpanId"] == ["00000000000000ab", ""]
    assert [r["ParentSpanId"] for r in (first, second, third)] == ["00000000000000ff", "", ""]
    assert second["SpanAttributes"] == {"stagelens.repair": "bad_parent_id:ignored"}
    assert third["SpanAttributes"] == {}


def test_times_that_the_store_cannot_hold_refuse_their_span_alone(live):
    """10 minutes and 2 days old are kept; 40 days, no time and the far future not (faults 74)."""
    trace = next(fresh)
    starts = [NOW - 600 * SECOND, NOW - 2 * DAY, NOW - 40 * DAY, 0, NOW + 2 * DAY, 2**64 - 1]
    made = request(*(
        span(n + 1, start, trace_id=trace.to_bytes(16, "big"), end_time_unix_nano=start)
        for n, start in enumerate(starts)
    ), span(7, NOW, trace_id=trace.to_bytes(16, "big"), end_time_unix_nano=2**64 - 1))  # fmt: skip
    answer = live.post(made)
    assert rejected(answer) == 5
    message = ExportTraceServiceResponse.FromString(answer.content).partial_success.error_message
    assert message == "rejected 5 (no_time: 1, older_than_ttl: 1, time_in_future: 3)"
    assert [row["StartNs"] for row in live.spans(trace)] == starts[:2]


def test_kinds_and_status_codes_as_numbers_names_absent_or_nonsense(live):
    """2, a name, absent, 99: Server, Server, Unspecified, Unspecified (faults 70)."""
    trace = next(fresh)
    kinds = [2, "SPAN_KIND_SERVER", None, 99, "SERVER", True, 2.0, -1]
    codes = [2, "STATUS_CODE_ERROR", None, 99, "x", False, 1, 3]
    live.post_json(json_request(*(
        json_span(trace, n + 1, kind=kind, status={"code": code}, unknown={"x": [1]})
        for n, (kind, code) in enumerate(zip(kinds, codes, strict=True))
    ), json_span(trace, 9)))  # fmt: skip
    rows = live.spans(trace)
    none = "Unspecified"
    assert [r["SpanKind"] for r in rows] == ["Server", "Server", none, none, none, none, "Server",
                                             none, none]  # fmt: skip
    assert [r["StatusCode"] for r in rows] == ["Error", "Error", "Unset", "Unset", "Unset", "Unset",
                                               "Ok", "Unset", "Unset"]  # fmt: skip
    trace = next(fresh)
    live.post(one(trace, 1, kind=99, status={"code": 99}))
    live.post(one(trace, 2, kind=-3, status={"code": -3}))
    assert [(r["SpanKind"], r["StatusCode"]) for r in live.spans(trace)] == [(none, "Unset")] * 2


def test_one_bad_span_does_not_take_the_others_with_it(live):
    """Of ten with a key without a value, no span id and a type clash, nine are kept (faults 73)."""
    trace = next(fresh)
    spans = [json_span(trace, n, attributes=[{"key": "x", "value": {"intValue": "1"}}])
             for n in range(1, 11)]  # fmt: skip
    spans[2]["attributes"] = [{"key": "a"}, None]
    del spans[4]["spanId"]
    spans[6]["attributes"] = [{"key": "x", "value": {"doubleValue": 1.5}}]
    answer = live.post_json(json_request(*spans))
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    rows = live.spans(trace)
    assert [int(r["SpanId"], 16) for r in rows] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert (rows[2]["SpanAttributes"], rows[5]["SpanAttributes"]) == ({"a": ""}, {"x": "1.5"})


def test_a_span_that_cannot_be_read_is_refused_alone(live):
    """Wrong types and too large numbers in JSON cost one span, not its batch (faults 73)."""
    trace = next(fresh)
    spoilt = [
        json_span(trace, 10, attributes=[{"key": "a", "value": {"intValue": "99999999999999999999"}}]),
        json_span(trace, 11, attributes=[{"key": "a", "value": {"intValue": 1.5}}]),
        json_span(trace, 12, attributes="no list"), json_span(trace, 13, name=5),
        json_span(trace, 14, startTimeUnixNano="soon"), json_span(trace, 15, traceState=[1]), "text", 7,
    ]  # fmt: skip
    answer = live.post_json(json_request(json_span(trace, 1), *spoilt, json_span(trace, 2), None))
    assert rejected(answer) == len(spoilt)
    assert "malformed: 7" in answer.text
    assert [int(row["SpanId"], 16) for row in live.spans(trace)] == [1, 2]


def test_a_span_that_is_no_protobuf_is_refused_alone(live):
    """Text that is not UTF-8 costs its span, not the batch; the resource is kept."""
    trace = next(fresh)
    body = request(*(
        span(n, NOW, trace_id=trace.to_bytes(16, "big"), name=f"name {n}") for n in (1, 2, 3)
    )).SerializeToString().replace(b"name 2", b"nam\xff\xfe2")  # fmt: skip
    assert rejected(live.post(body)) == 1
    assert [(r["SpanName"], r["ServiceName"]) for r in live.spans(trace)] == [
        ("name 1", "svc"), ("name 3", "svc"),
    ]  # fmt: skip


def test_a_span_that_ends_before_it_starts_lasts_zero_and_says_so(live):
    """Never an unsigned wrap (faults 67)."""
    trace = next(fresh)
    live.post(one(trace, end_time_unix_nano=NOW - 1))
    row = live.spans(trace)[0]
    assert row["Duration"] == 0
    assert row["SpanAttributes"] == {"stagelens.repair": "end_before_start:duration_0"}


def attributes_of(live: LiveReceiver, *pairs: tuple[str, object]) -> dict[str, str]:
    """What is stored of attributes given as (key, JSON AnyValue)."""
    trace = next(fresh)
    listed = [{"key": key, "value": value} for key, value in pairs]
    assert rejected(live.post_json(json_request(json_span(trace, attributes=listed)))) == 0
    return live.spans(trace)[0]["SpanAttributes"]


def test_values_of_all_types_become_text(live):
    """64-bit numbers as text or number, truth values, floats, bytes, arrays, maps (JSON text)."""
    inner = [{"key": "kind", "value": {"stringValue": "x"}}, {"key": "code", "value": {"intValue": 7}},
             {"key": "traceId", "value": {"stringValue": "W47/"}}, {"key": "none", "value": None},
             {"key": "nan", "value": {"doubleValue": "NaN"}}]  # fmt: skip
    assert attributes_of(
        live,
        ("kind", {"stringValue": "mine"}), ("code", {"intValue": 77}),
        ("traceId", {"stringValue": BASE64_ID}),
        ("text", {"intValue": str(-(2**63))}), ("number", {"intValue": 2**63 - 1}),
        ("true", {"boolValue": True}), ("float", {"doubleValue": 0.5}),
        ("nan", {"doubleValue": "NaN"}), ("inf", {"doubleValue": "-Infinity"}),
        ("bytes", {"bytesValue": "AAH/"}), ("null", None), ("empty", {}),
        ("twice", {"intValue": 1}), ("twice", {"intValue": 2}), ("nul", {"stringValue": "a\0b"}),
        ("list", {"arrayValue": {"values": [{"intValue": "1"}, None, {"stringValue": "é"}]}}),
        ("map", {"kvlistValue": {"values": inner}}),
    ) == {
        "kind": "mine", "code": "77", "traceId": BASE64_ID, "text": str(-(2**63)),
        "number": str(2**63 - 1), "true": "true", "float": "0.5", "nan": "nan", "inf": "-inf",
        "bytes": "AAH/", "null": "", "empty": "", "twice": "2", "nul": "a\0b",
        "list": '[1, null, "é"]',
        "map": '{"kind": "x", "code": 7, "traceId": "W47/", "none": null, "nan": "NaN"}',
    }  # fmt: skip


def test_half_a_surrogate_pair_becomes_a_replacement_character(live):
    """JSON can spell text that UTF-8 cannot hold; the span is kept."""
    body = json.dumps(json_request(json_span(trace := next(fresh), name="a\ud800b"))).encode()
    assert rejected(live.post(body, content_type="application/json")) == 0
    assert live.spans(trace)[0]["SpanName"] == "a\ufffdb"


def test_huge_text_is_cut_with_a_note(live):
    """A value keeps its first mebi-characters, a name its first thousands; both say so."""
    from collectors.receive.attributes import NAME_LIMIT, TEXT_LIMIT

    trace = next(fresh)
    with live_receiver(live.store) as wide:
        long = "é" * (TEXT_LIMIT + 5)
        made = one(trace, name="n" * 10**6, attributes={"a": long})
        assert rejected(wide.post(made)) == 0
        row = wide.spans(trace)[0]
    assert row["SpanAttributes"]["a"] == "é" * TEXT_LIMIT + f"… (cut; {len(long)} characters)"
    assert row["SpanName"] == "n" * NAME_LIMIT + "… (cut; 1000000 characters)"


def test_a_big_resource_is_not_copied_into_every_row_whole(live):
    """A resource stands in each of its rows, so that it is cut at a smaller size."""
    trace = next(fresh)
    made = request(*(span(n, NOW, trace_id=trace.to_bytes(16, "big")) for n in range(1, 50)),
                   big="x" * 500_000, many="y" * 100)  # fmt: skip
    assert rejected(live.post(made)) == 0
    for row in live.spans(trace):
        kept = row["ResourceAttributes"]
        assert (kept["service.name"], kept["many"]) == ("svc", "y" * 100)
        assert len(kept["big"]) < 20_000
        assert kept["big"].endswith("… (cut; 500000 characters)")


def deep(levels: int) -> dict[str, object]:
    made: dict[str, object] = {"stringValue": "bottom"}
    for _ in range(levels):
        made = {"kvlistValue": {"values": [{"key": "k", "value": made}]}}
    return made


def test_deep_values_are_kept_or_say_where_they_were_cut(live):
    """Depth that people use is kept; beyond it the text says so; absurd depth costs one span."""
    assert attributes_of(live, ("a", deep(15)))["a"].count("k") == 15
    assert "nested deeper" in attributes_of(live, ("a", deep(25)))["a"]
    trace = next(fresh)
    bad = json_span(trace, 2, attributes=[{"key": "a", "value": deep(150)}])
    assert rejected(live.post_json(json_request(json_span(trace, 1), bad))) == 1
    assert len(live.spans(trace)) == 1


def test_event_times_of_zero_and_beyond_the_calendar_are_stored(live):
    """An event's strange time does not cost the span; it is held to what the column can hold."""
    trace = next(fresh)
    times = [0, NOW, 2**63, 2**64 - 1]
    made = one(trace, events=[{"time_unix_nano": t, "name": "e" * 10**5} for t in times])
    assert rejected(live.post(made)) == 0
    row = live.rows(
        "SELECT arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS t, Events.Name AS n "
        f"FROM {{db}}.otel_traces WHERE TraceId = '{trace:032x}'"
    )[0]
    assert row["t"] == [0, NOW, 2**63 - 1, 2**63 - 1]
    assert all(len(name) < 10**4 for name in row["n"])


def test_a_batch_over_more_days_than_a_server_likes_is_stored(live):
    """Spans of 101 days are 101 partitions in one insert, which ClickHouse refuses by default."""
    from tests.conftest import FOREVER

    trace = next(fresh)
    with live_receiver(live.store, store=FOREVER) as wide:
        made = request(*(span(n, NOW - n * DAY, trace_id=trace.to_bytes(16, "big"))
                         for n in range(1, 102)))  # fmt: skip
        assert rejected(wide.post(made)) == 0
        assert len(wide.spans(trace)) == 101


def test_more_attributes_than_a_span_can_need_are_left_out_and_counted(live):
    """1024 and four million characters are kept, so that no one span fills the store's memory."""
    trace = next(fresh)
    many = {f"k{n}": n for n in range(3000)}
    assert rejected(live.post(one(trace, 1, attributes=many))) == 0
    kept = live.spans(trace)[0]["SpanAttributes"]
    assert len(kept) == 1025
    assert kept["stagelens.attributes_left_out"] == str(3000 - 1024)
    large = attribute_map(pairs({f"k{n}": "x" * 900_000 for n in range(7)}))
    assert large["stagelens.attributes_left_out"] == "3"
