"""One trace by its id."""

from __future__ import annotations

import io

import pytest

from dashboards.errors import AmbiguousError, BadValueError, NotStoredError, UnavailableError
from dashboards.filters import Filters
from dashboards.queries import trace as trace_module
from dashboards.queries.report import report
from dashboards.queries.trace import trace
from dashboards.terminal.console import make_console
from dashboards.terminal.trace import render_trace
from tests.unit.dashboards.conftest import when
from tracer import semconv
from tracer.stages import Stage

BASE = 1_767_268_800_000_000_000
ONE = "ab" * 16
TWO = "abab" + "cd" * 14


def span(name, span_id, parent, start, duration, trace_id=ONE, **columns):
    return {
        "TraceId": trace_id,
        "SpanId": span_id,
        "ParentSpanId": parent,
        "SpanName": name,
        "start": start,
        "duration": duration,
        **columns,
    }


def stage(name, span_id, parent, start, duration, **columns):
    return span(
        name, span_id, parent, start, duration, SpanAttributes={semconv.STAGE: name}, **columns
    )


def one_request(store):
    store.requests(
        {
            "TraceId": ONE,
            "SpanId": "r",
            "start": 7,
            "prompt": 10,
            "HandoffNs": 4,
            "queue": 20,
            "decode": 31,
            "PreemptedNs": 5,
            "Preemptions": 2,
            "FirstTokenNs": 30,
            "ItlNs": [3, 9, 4],
            "ItlKind": "token",
            "InputTokens": 12,
            "CachedTokens": 8,
            "OutputTokens": 4,
            "InFlight": 3,
            "Warm": False,
            "ColdReason": "compile",
            "Repairs": ["late_token"],
            "Tags": {"run": "x"},
        }
    )
    store.spans(
        span("POST /v1", "r", "", 7, 61, SpanKind="Server"),
        span("chat m", "c", "r", 13, 55, StatusCode="Error", StatusMessage="boom"),
        stage("prompt", "p", "r", 7, 10),
        stage("queue", "q", "c", 17, 20),
        stage(
            "decode",
            "d",
            "c",
            37,
            31,
            **{
                "Events.Timestamp": ["2026-01-01 12:00:00.000000040"],
                "Events.Name": ["preempted"],
                "Events.Attributes": [{"a": "b"}],
            },
        ),
    )


def test_spans_stand_in_their_tree_with_exact_offsets(store):
    """Offsets are nanoseconds from the root's start, lengths those stored."""
    one_request(store)
    found = trace(store, ONE)
    assert [(s.depth, s.name, s.offset_ns, s.duration_ns, s.stage) for s in found.spans] == [
        (0, "POST /v1", 0, 61, None),
        (1, "prompt", 0, 10, "prompt"),
        (1, "chat m", 6, 55, None),
        (2, "queue", 10, 20, "queue"),
        (2, "decode", 30, 31, "decode"),
    ]
    assert (found.start_unix_ns, found.duration_ns, found.spans_left_out) == (BASE + 7, 61, 0)
    failed = found.spans[2]
    assert (failed.status, failed.status_message) == ("Error", "boom")
    (event,) = found.spans[4].events
    assert (event.name, event.offset_ns, event.attributes) == ("preempted", 33, {"a": "b"})


def test_the_record_stands_beside_the_spans(store):
    """All of the request's own figures are there, no data as None."""
    one_request(store)
    (record,) = trace(store, ONE).requests
    assert (record.offset_ns, record.e2e_ns, record.stages_sum_ns) == (0, 61, 61)
    stages = {one.stage: (one.ns, one.count, one.part_of) for one in record.stages}
    assert stages["prompt"] == (10, 1, None)
    assert stages["handoff"] == (4, 1, "prompt")
    assert stages["decode"] == (31, 1, None)
    assert stages["preempted"] == (5, 2, "decode")
    assert stages["tool"] == (0, 0, None)
    assert (record.ttft_ns, record.first_chunk_ns, record.tpot_ns) == (30, None, None)
    assert (record.itl_n, record.itl_max_ns, record.itl_kind) == (3, 9, "token")
    assert (record.input_tokens, record.cached_tokens, record.reasoning_tokens) == (12, 8, None)
    assert (record.in_flight, record.running, record.waiting) == (3, None, None)
    assert (record.warm, record.cold_reason, record.repairs) == (False, "compile", ("late_token",))
    assert (record.http_status, record.error_type, record.tags) == (200, None, {"run": "x"})


@pytest.mark.parametrize(
    ("column", "attribute", "told"),
    [
        ("gen_ai,first_token=first_chunk", "", ("gen_ai", "first_token=first_chunk")),
        ("", "no_engine_stamps,beam_search", ("no_engine_stamps", "beam_search")),
        ("usage,engine_span", "usage", ("usage", "engine_span")),
        ("", "", ()),
    ],
)
def test_a_record_says_what_its_figures_rest_on(store, column, attribute, told):
    """As its row says, or where a view made the row as its root span does."""
    store.requests({"TraceId": ONE, "SpanId": "r", "SourceDetail": column})
    marks = {semconv.SOURCE_DETAIL: attribute} if attribute else {}
    store.spans(
        span("POST /v1", "r", "", 0, 9, SpanAttributes=marks),
        span("chat m", "c", "r", 0, 9, SpanAttributes={semconv.SOURCE_DETAIL: "another"}),
    )
    (record,) = trace(store, ONE).requests
    assert (record.source, record.source_detail) == ("engine", told)


@pytest.mark.parametrize("given", [ONE, ONE.upper(), f" {ONE} ", "ababa", "ABABAB"])
def test_an_id_or_its_unique_beginning_finds_the_trace(store, given):
    """Case and spaces do not matter, and the first digits are enough."""
    store.spans(span("a", "1", "", 0, 1), span("b", "1", "", 0, 1, trace_id=TWO))
    assert trace(store, given).trace_id == ONE


def test_a_beginning_of_several_traces_lists_them(store):
    """The sentence names the candidates and asks for more digits."""
    store.spans(span("a", "1", "", 0, 1), span("b", "1", "", 0, 1, trace_id=TWO))
    with pytest.raises(AmbiguousError) as caught:
        trace(store, "abab")
    assert f"begins several traces ({ONE}, {TWO}): give more digits" in str(caught.value)


def test_many_candidates_are_not_all_listed(store):
    """A short beginning of very many traces gives a short sentence."""
    store.spans(*(span("a", "1", "", 0, 1, trace_id=f"abab{i:028x}") for i in range(9)))
    with pytest.raises(AmbiguousError) as caught:
        trace(store, "abab")
    assert " and more): give more digits" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_no_such_trace_is_one_sentence(store):
    """Nothing stored under an id is told with what to check."""
    with pytest.raises(NotStoredError, match="no trace 'ffffff' is stored: check the id"):
        trace(store, "ffffff")


@pytest.mark.parametrize(
    "given", ["", "abc", "xyz12345", "a" * 33, "ab%", "' OR 1=1 --", "abab' OR ''='", "ａｂａｂ"]
)
def test_what_is_no_id_is_told_so(store, given):
    """Only hexadecimal digits ever reach the store."""
    with pytest.raises(BadValueError, match="trace id"):
        trace(store, given)


def test_a_trace_without_the_look_up_table_is_found_too(store):
    """Rows that another writer stored without the view are searched for directly."""
    store.spans(span("a", "1", "", 0, 1))
    store.truncate("otel_traces_trace_id_ts")
    assert trace(store, "abab").spans[0].name == "a"


def test_spans_over_days_are_all_found(store):
    """The time bounds of the search come from the trace itself."""
    day = 86_400 * 10**9
    store.spans(span("a", "1", "", 0, 3 * day), span("b", "2", "1", 2 * day + 5, 1))
    assert [s.offset_ns for s in trace(store, ONE).spans] == [0, 2 * day + 5]


def test_spans_beyond_the_limit_are_counted(store, monkeypatch):
    """A huge trace is cut, and says by how much."""
    monkeypatch.setattr(trace_module, "MOST_SPANS", 3)
    store.spans(*(span("s", str(i), "", i, 1) for i in range(5)))
    found = trace(store, ONE)
    assert (len(found.spans), found.spans_left_out) == (3, 2)


def test_huge_values_are_cut(store):
    """An attribute with a whole prompt in it does not fill the answer."""
    store.spans(span("a", "1", "", 0, 1, SpanAttributes={"prompt": "é" * 9000}))
    found = trace(store, ONE)
    assert found.spans[0].attributes["prompt"] == "é" * 4096
    assert found.values_cut == 1


def test_huge_values_of_events_are_cut_too_and_counted(store):
    """Two of an event, a message and an attribute: each is cut and told; 4,096 characters are not."""
    huge = "é" * 4097
    store.spans(span(
        "a", "1", "", 0, 1, SpanAttributes={"prompt": huge, "whole": "é" * 4096}, StatusMessage=huge,
        **{"Events.Timestamp": [when(0), when(1)], "Events.Name": ["a", "b"],
           "Events.Attributes": [{"x": huge, "y": huge, "z": "z"}, {}]},
    ))  # fmt: skip
    found = trace(store, ONE)
    (one,) = found.spans
    assert one.events[0].attributes == {"x": "é" * 4096, "y": "é" * 4096, "z": "z"}
    assert one.events[1].attributes == {}
    assert (len(one.status_message), found.values_cut) == (4096, 4)
    console = make_console(io.StringIO(), 100)
    render_trace(found, console)
    assert "1 span; 4 values are cut" in console.file.getvalue()


def test_two_requests_of_one_trace_have_a_record_each(store):
    """An agent's calls under one trace id are told apart, in order of time."""
    store.requests(
        {"TraceId": ONE, "SpanId": "2", "start": 50, "decode": 5},
        {"TraceId": ONE, "SpanId": "1", "start": 0, "decode": 5},
    )
    store.spans(span("a", "1", "agent", 0, 5), span("b", "2", "agent", 50, 5))
    found = trace(store, ONE)
    assert [(r.span_id, r.offset_ns) for r in found.requests] == [("1", 0), ("2", 50)]
    assert all(s.orphan for s in found.spans)


def test_a_store_without_tables_is_told_so(store):
    """The sentence says what makes the tables."""
    store.database = "nothing_here"
    with pytest.raises(UnavailableError, match="start a collector on this store once"):
        trace(store, ONE)


def test_a_root_span_with_a_record_is_a_request_of_the_report(store):
    """What a sender writes as attributes comes out as figures, through the store's own view."""
    attributes = {
        semconv.RECORD_VERSION: "1",
        semconv.STATUS: "ok",
        semconv.OPERATION: "chat",
        semconv.MODEL: "m",
        semconv.STREAM: "true",
        semconv.E2E_NS: "100",
        semconv.stage_ns(Stage.QUEUE): "40",
        semconv.stage_count(Stage.QUEUE): "1",
        semconv.stage_ns(Stage.DECODE): "60",
        semconv.stage_count(Stage.DECODE): "2",
        semconv.FIRST_TOKEN_NS: "45",
        semconv.ITL_NS: "10,20,30",
        semconv.ITL_KIND: "token",
        semconv.OUTPUT_TOKENS: "4",
        semconv.WARM: "false",
        semconv.TAG_PREFIX + "run": "x",
    }
    store.spans(span("POST /v1", "r", "", 0, 100, SpanAttributes=attributes))
    (record,) = trace(store, ONE).requests
    assert (record.e2e_ns, record.stages_sum_ns, record.ttft_ns) == (100, 100, 45)
    found = report(store, Filters(run="x"), ["warm"], now_unix_ns=BASE).overall
    assert (found.stage("decode").n, found.stage("tool").n) == (1, 0)
    assert found.measure("itl").p50_ns == 20
    assert found.counts.cold == 1
