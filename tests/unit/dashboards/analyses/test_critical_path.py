"""The critical path through parallel work."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dashboards.analyses.path import SpanPlace, request_path
from dashboards.analyses.paths import critical_paths
from dashboards.analyses.whatif import parse_changes, whatif
from dashboards.filters import Filters
from dashboards.source import StoreSource
from dashboards.terminal.causes import render_path, render_trace_path
from tests.support.clock import FakeClock
from tracer.stages import Stage, StageInterval, partition

MS = 1_000_000
ID = "ab" * 16


def place(span_id, parent, name, stage, start, end):
    return SpanPlace(span_id, parent, name, stage, start, end)


def agent():
    """A model call, then a weather tool of 30 beside a stock tool of 20, then a call again."""
    return [
        place("r", "", "POST", "", 0, 100),
        place("c1", "r", "chat", "", 0, 40),
        place("p1", "c1", "prefill", "prefill", 0, 10),
        place("d1", "c1", "decode", "decode", 10, 40),
        place("t1", "r", "execute_tool weather", "tool", 40, 70),
        place("t2", "r", "execute_tool stocks", "tool", 45, 65),
        place("c2", "r", "chat", "", 70, 98),
        place("d2", "c2", "decode", "decode", 70, 95),
    ]


def test_of_two_tools_beside_each_other_the_longer_holds_the_path():
    """Weather is on the path for 30, stocks for 0; without weather 10 would be gained, not 30."""
    spans = agent()
    found = request_path(ID, spans[0], spans, 0)
    held = [(s.name, s.offset_ns, s.ns) for s in found.segments]
    assert held == [
        ("prefill", 0, 10), ("decode", 10, 30), ("execute_tool weather", 40, 30),
        ("decode", 70, 25), ("unattributed", 95, 5),
    ]  # fmt: skip
    steps = {one.name: one for one in found.steps}
    weather, stocks, decode = (
        steps[n] for n in ("execute_tool weather", "execute_tool stocks", "decode")
    )
    assert (weather.on_path_ns, weather.beside_ns, weather.if_gone_ns) == (30, 0, 10)
    assert (stocks.on_path_ns, stocks.beside_ns, stocks.if_gone_ns) == (0, 20, 0)
    assert (decode.runs, decode.on_path_ns, decode.if_gone_ns) == (2, 55, 55)


def test_a_task_around_a_request_is_seen_through():
    """Where the request through the proxy runs, its own stages hold the task's time."""
    spans = [
        place("task", "", "answer", "", 0, 50),
        place("llm", "task", "chat m", "decode", 5, 45),
        place("r", "llm", "POST", "", 10, 40),
        place("q", "r", "queue", "queue", 10, 20),
        place("d", "r", "decode", "decode", 20, 40),
    ]
    found = request_path(ID, spans[0], spans, 0)
    assert [(s.span_id, s.offset_ns, s.ns) for s in found.segments] == [
        (None, 0, 5), ("llm", 5, 5), ("q", 10, 10), ("d", 20, 20), ("llm", 40, 5), (None, 45, 5),
    ]  # fmt: skip


works = st.lists(
    st.tuples(st.sampled_from(list(Stage)[:-1]), st.integers(-20, 120), st.integers(0, 80)),
    max_size=10,
)


@settings(deadline=None)
@given(works)
def test_the_path_is_the_partition_and_adds_up(given_works):
    """Of any flat spans: segments divide E2E, stages hold what the record's partition says."""
    spans = [place("r", "", "POST", "", 0, 100)]
    spans += [
        place(f"s{i}", "r", str(stage), str(stage), a, a + n) for i, (stage, a, n) in enumerate(given_works)
    ]
    found = request_path(ID, spans[0], spans, 0)
    divided = partition(0, 100, [StageInterval(s, a, a + n) for s, a, n in given_works])
    assert sum(s.ns for s in found.segments) == sum(s.on_path_ns for s in found.steps) == 100
    for stage in Stage:
        held = sum(s.on_path_ns for s in found.steps if s.stage == stage)
        assert held == divided.exclusive_ns[stage]
    assert all(0 <= s.if_gone_ns <= s.on_path_ns <= s.total_ns for s in found.steps if s.runs)


def stored(store):
    """Two agents in the store, and a request without spans."""
    for n, stretch in ((1, 1), (2, 3)):
        trace = f"{n:032x}"
        store.requests({"TraceId": trace, "SpanId": f"r{n}", "E2ENs": 100 * stretch * MS})
        store.spans(*(
            {
                "TraceId": trace, "SpanId": f"{s.span_id}{n}",
                "ParentSpanId": f"{s.parent_id}{n}" if s.parent_id else "", "SpanName": s.name,
                "SpanAttributes": {"stagelens.stage": s.stage} if s.stage else {},
                "start": s.start_ns * stretch * MS, "duration": (s.end_ns - s.start_ns) * stretch * MS,
            }
            for s in agent()
        ))  # fmt: skip
    store.requests({"decode": 5})


def test_many_paths_add_up(store):
    """Sums over requests equal all their E2E; the one without spans is counted."""
    stored(store)
    found = critical_paths(store, Filters(), ["model"])
    one = found.overall
    assert (one.chosen, one.requests, one.without_spans, one.e2e_ns) == (3, 2, 1, 400 * MS)
    assert sum(step.on_path_ns for step in one.steps) == one.e2e_ns
    weather = next(s for s in one.steps if s.name == "execute_tool weather")
    assert (weather.on_path_ns, weather.if_gone_ns, weather.runs) == (120 * MS, 40 * MS, 2)
    assert (weather.p50_ns, weather.requests) == (60 * MS, 2)
    assert one.beside_ns == 80 * MS
    assert found.groups[0].key == {"model": "m"}
    assert found.reading[0].startswith("Looked at: 3 requests; 2 of them have their spans")
    assert "decode holds 55 % of the critical path." in found.reading
    assert "execute_tool stocks ran 0.08 s beside other work" in found.reading[2]


def test_the_path_of_one_trace(store):
    """By its id, or its beginning: the same segments."""
    stored(store)
    found = StoreSource(store, FakeClock(unix_ns=1)).trace_path(f"{2:032x}")
    assert [s.ns // MS for s in found.requests[0].segments] == [30, 90, 90, 75, 15]


def test_whatif_moves_only_what_is_on_the_path(store):
    """A retrieval that ran beside a longer tool held no time: no change of it moves E2E."""
    store.requests({"tool": 30 * MS, "decode": 10 * MS, "StageCounts": {"retrieval": 1, "tool": 1}})
    for change in ("retrieval=+50ms", "retrieval=-50%"):
        after = whatif(store, Filters(), parse_changes([change])).effects[0].after_ns
        assert after == 40 * MS
    assert whatif(store, Filters(), parse_changes(["tool=-50%"])).effects[0].after_ns == 25 * MS


def test_a_request_of_which_only_some_spans_were_read_has_no_path(store, monkeypatch):
    """Of two requests with 3 spans each 5 are read: the second one is left out and counted."""
    monkeypatch.setattr("dashboards.analyses.paths.MOST_SPANS", 5)
    for n, start in ((1, 0), (2, 10 * MS)):
        store.traced(n, decode=(start, start + 5 * MS))
    found = critical_paths(store, Filters()).overall
    assert (found.chosen, found.requests, found.without_spans) == (2, 1, 1)
    assert [(s.name, s.on_path_ns) for s in found.steps] == [("decode", 5 * MS)]


def test_a_request_of_which_the_root_alone_is_stored_has_no_path(store):
    """Its record tells queue, prefill and decode: not "unattributed 100 %", in the sum or its trace."""
    held = {"queue": 100 * MS, "prefill": 100 * MS, "decode": 1000 * MS}
    store.requests({"TraceId": ID, "SpanId": "r", **held})
    store.spans({"TraceId": ID, "SpanId": "r", "duration": 1200 * MS})
    found = critical_paths(store, Filters())
    assert (found.overall.requests, found.overall.without_spans, found.overall.steps) == (0, 1, ())
    assert "none has its spans stored" in found.reading[0]
    one = StoreSource(store, FakeClock(unix_ns=1)).trace_path(ID)
    assert (one.requests, one.without_spans) == ((), 1)
    console = Console(width=100, file=io.StringIO(), record=True)
    render_trace_path(one, console)
    assert "1 request without spans left out" in console.export_text()


def test_a_request_whose_record_tells_no_stage_has_its_path(store):
    """The record itself says that all is unattributed: then the path says so too."""
    store.requests({"TraceId": ID, "SpanId": "r", "unattributed": 50 * MS})
    store.spans({"TraceId": ID, "SpanId": "r", "duration": 50 * MS})
    found = critical_paths(store, Filters()).overall
    assert [(s.stage, s.share) for s in found.steps] == [("unattributed", 1.0)]
    assert len(StoreSource(store, FakeClock(unix_ns=1)).trace_path(ID).requests) == 1


def test_how_many_were_looked_at_is_said_where_they_are_not_all(store, monkeypatch):
    """Of six requests four are looked at, two of these without spans: three numbers, none mixed up."""
    monkeypatch.setattr("dashboards.analyses.paths.MOST_REQUESTS", 4)
    for n in range(6):
        store.traced(n + 1, decode=(n * 10 * MS, n * 10 * MS + 5 * MS))
    store.raw.command(
        f"ALTER TABLE {store.database}.otel_traces DELETE WHERE TraceId IN ("
        f"SELECT TraceId FROM {store.database}.requests ORDER BY cityHash64(TraceId, SpanId) LIMIT 2) "
        "SETTINGS mutations_sync = 1"
    )
    found = critical_paths(store, Filters())
    one = found.overall
    assert (one.chosen, one.looked_at, one.requests, one.without_spans) == (6, 4, 2, 2)
    assert found.reading[0] == (
        "Looked at: 4 requests of 6, chosen by a hash; 2 of them have their spans, and all figures "
        "are of those."
    )
    console = Console(width=100, file=io.StringIO(), record=True)
    render_path(found, console)
    text = console.export_text()
    assert "all (2 of 4 looked at)" in text
    assert "2 requests without spans left out" in text
    store.truncate("otel_traces")
    assert critical_paths(store, Filters()).reading[0].startswith("Of 4 requests looked at none has")
