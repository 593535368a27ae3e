"""From OTLP bodies over the wire to rows of ``requests``: quiet, late, again, killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from collectors.normalise.normaliser import Normaliser
from collectors.normalise.settings import NormaliseSettings
from collectors.normalise.tables import Tables
from collectors.store.client import Store
from tests.support.clock import FakeClock
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW, LiveReceiver, live_receiver, own_database
from tests.unit.collectors.normalise.test_join import engine as engine_span

MS = 1_000_000
traces = itertools.count(5000)
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
NEVER = NormaliseSettings(enabled=False, quiet_s=0)


@pytest.fixture(scope="module")
def live(engine: Store) -> Iterator[LiveReceiver]:
    with own_database(engine) as store, live_receiver(store, normalise=NEVER) as made:
        yield made


@pytest.fixture
def normaliser(live: LiveReceiver) -> Normaliser:
    """One whose thread does not run: ``look`` is called by the test."""
    return Normaliser(Tables(live.store), FakeClock(unix_ns=NOW), NEVER)


def one(trace: int, number: int, parent: int | None, begin: int, end: int, told: dict[str, object],
        name: str = "x", **more: object):  # fmt: skip
    return span(
        number, NOW + begin * MS, told, trace_id=trace.to_bytes(16, "big"), name=name,
        parent_span_id=b"" if parent is None else parent.to_bytes(8, "big"),
        end_time_unix_nano=NOW + end * MS, **more,
    )  # fmt: skip


def stored(live: LiveReceiver, trace: int) -> list[dict[str, object]]:
    return live.rows(
        "SELECT * REPLACE (toUnixTimestamp64Nano(Timestamp) AS Timestamp) FROM {db}.requests "
        f"WHERE TraceId = '{trace:032x}' ORDER BY SpanId"
    )


def send(live: LiveReceiver, *spans: object, **resource: object) -> None:
    assert live.post(request(*spans, **resource)).status_code == 200
    live.settle()


def test_a_foreign_trace_becomes_one_row_with_its_columns(live, normaliser):
    """As the bodies say, and what nobody said is NULL."""
    trace = next(traces)
    send(live, one(trace, 1, None, 0, 1000, {
        **CHAT, "gen_ai.response.time_to_first_chunk": 0.4, "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7, "gen_ai.input.messages": "[secret]",
    }, name="chat m"))  # fmt: skip
    assert stored(live, trace) == []
    normaliser.look()
    (row,) = stored(live, trace)
    wanted = {
        "Timestamp": NOW, "SpanId": f"{1:016x}", "ServiceName": "svc", "ServiceInstance": "i1",
        "Model": "m", "Operation": "chat", "Status": "ok", "E2ENs": 1000 * MS,
        "DecodeNs": 600 * MS, "UnattributedNs": 400 * MS, "FirstTokenNs": 400 * MS,
        "InputTokens": 5, "OutputTokens": 7, "CachedTokens": None, "Warm": None, "Source": "client",
        "StageCounts": {"decode": 1}, "Tags": {}, "Stream": True, "ItlNs": [],
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert "secret" not in str(row)


def test_nothing_is_written_twice_however_often_it_is_looked(live, normaliser):
    """The same spans make the same row; a second process finds it and leaves it."""
    trace = next(traces)
    send(live, one(trace, 1, None, 0, 10, CHAT))
    normaliser.look()
    before = stored(live, trace)
    normaliser.look()
    Normaliser(Tables(live.store), FakeClock(unix_ns=NOW + 1), NEVER).look()
    assert stored(live, trace) == before
    assert len(before) == 1


def test_a_late_root_replaces_the_rows_of_its_parts(live, normaliser):
    """Two orphans were two requests; with their root they are one."""
    trace = next(traces)
    send(live, one(trace, 2, 1, 0, 10, CHAT), one(trace, 3, 1, 20, 60, CHAT))
    normaliser.look()
    assert [row["E2ENs"] for row in stored(live, trace)] == [10 * MS, 40 * MS]
    send(live, one(trace, 1, None, 0, 100, {}, name="POST /ask"))
    normaliser.look()
    (row,) = stored(live, trace)
    assert (row["SpanId"], row["E2ENs"]) == (f"{1:016x}", 100 * MS)


def test_a_late_child_amends_the_record(live, normaliser):
    """The retrieval came after its request had been looked at."""
    trace = next(traces)
    send(live, one(trace, 1, None, 0, 100, {"openinference.span.kind": "CHAIN"}),
         one(trace, 2, 1, 50, 100, {"openinference.span.kind": "LLM"}))  # fmt: skip
    normaliser.look()
    assert stored(live, trace)[0]["RetrievalNs"] == 0
    send(live, one(trace, 3, 1, 0, 40, {"openinference.span.kind": "RETRIEVER"}))
    normaliser.look()
    (row,) = stored(live, trace)
    assert (row["RetrievalNs"], row["UnattributedNs"]) == (40 * MS, 60 * MS)


def test_a_trace_waits_until_it_is_quiet_but_not_for_ever(live):
    """By the store's clock: quiet for a while, or too long not quiet."""
    trace = next(traces)
    send(live, one(trace, 1, None, 0, 10, CHAT))
    waits = NormaliseSettings(enabled=False, quiet_s=3600, longest_wait_s=7200)
    slow = Normaliser(Tables(live.store), FakeClock(unix_ns=NOW), waits)
    slow.look()
    assert stored(live, trace) == []
    assert slow.counts.waiting >= 1
    hasty = NormaliseSettings(enabled=False, quiet_s=3600, longest_wait_s=0)
    Normaliser(Tables(live.store), FakeClock(unix_ns=NOW), hasty).look()
    assert len(stored(live, trace)) == 1


def test_a_crash_between_writing_and_deleting_is_mended_at_the_next_look(live, normaliser):
    """Both forms of a row are there: the newer one stays."""
    trace = next(traces)
    send(live, one(trace, 2, None, 0, 10, CHAT))
    normaliser.look()
    (row,) = stored(live, trace)
    tables = Tables(live.store)
    tables.replace([{**row, "Version": int(str(row["Version"])) - 1}], [], 0)
    assert len(stored(live, trace)) == 2
    Normaliser(tables, FakeClock(unix_ns=NOW), NEVER).look()
    assert [r["Version"] for r in stored(live, trace)] == [row["Version"]]


RECORD = {
    "stagelens.record.version": 1, "stagelens.source": "upstream", "stagelens.source_detail": "usage",
    "stagelens.operation": "chat", "stagelens.model": "m", "stagelens.status": "ok",
    "stagelens.e2e_ns": 1000 * MS, "stagelens.tokens.output": 20, "stagelens.tag.team": "search",
    "stagelens.stage.unattributed_ns": 400 * MS, "stagelens.stage.decode_ns": 600 * MS,
    "stagelens.itl_ns": "1,2,3", "stagelens.first_token_ns": 400 * MS,
}  # fmt: skip


def ours(live: LiveReceiver, trace: int) -> None:
    made = request(
        one(trace, 1, None, 0, 1000, RECORD, name="POST /v1/chat/completions", kind=2),
        one(trace, 3, 1, 0, 1000, {**CHAT, "stagelens.attempt": 1}, name="chat m"),
        one(trace, 4, 3, 0, 400, {"stagelens.divisible": False}, name="time-to-first-token"),
        one(trace, 5, 3, 400, 1000, {"stagelens.stage": "decode"}, name="decode"),
    )
    made.resource_spans[0].scope_spans[0].scope.name = "stagelens"
    assert live.post(made).status_code == 200
    live.settle()


def theirs(live: LiveReceiver, trace: int) -> None:
    told = dict(engine_span(7, 3, queue=100, prefill=250, decode=590).attributes)
    send(live, one(trace, 7, 3, 30, 990, told, name="llm_request"), **{"service.name": "vllm"})


@pytest.mark.parametrize("order", [(ours, theirs), (theirs, ours)])
def test_a_vllm_span_is_joined_into_the_proxys_record_in_either_order(live, normaliser, order):
    """One row: the proxy's, with the engine's stages; tags, gaps and clocks stay."""
    trace = next(traces)
    for part in order:
        part(live, trace)
        normaliser.look()
    (row,) = stored(live, trace)
    wanted = {
        "QueueNs": 100 * MS, "PrefillNs": 250 * MS, "DecodeNs": 590 * MS, "DeliverNs": 10 * MS,
        "UnattributedNs": 50 * MS, "E2ENs": 1000 * MS, "Source": "upstream",
        "SourceDetail": "usage,engine_span", "Tags": {"team": "search"}, "ItlNs": [1, 2, 3],
        "FirstTokenNs": 400 * MS, "InputTokens": 70, "OutputTokens": 20, "SpanId": f"{1:016x}",
        "Timestamp": NOW,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    normaliser.look()
    assert stored(live, trace) == [row]


def test_spans_of_plain_services_are_not_read(live, normaliser):
    """A trace without a model call costs a note and nothing more."""
    trace = next(traces)
    send(live, one(trace, 1, None, 0, 10, {"http.route": "/"}))
    before = normaliser.counts.rows
    normaliser.look()
    assert (stored(live, trace), normaliser.counts.rows) == ([], before)


def test_the_next_process_goes_on_where_the_last_one_was(live):
    """The cursor is kept in the store; what still waits lies after it."""
    trace = next(traces)
    first = Normaliser(Tables(live.store), FakeClock(unix_ns=NOW), NEVER)
    send(live, one(trace, 1, None, 0, 10, CHAT))
    first.look()
    kept = Tables(live.store).cursor_ms()
    assert kept is not None
    assert abs(kept - Tables(live.store).now_ms()) < 600_000


def test_the_thread_makes_rows_by_itself_and_stops(live):
    """As the collector runs it."""
    trace = next(traces)
    quick = NormaliseSettings(quiet_s=0, interval_s=0.02)
    running = Normaliser(Tables(live.store), FakeClock(unix_ns=NOW), quick)
    running.start()
    try:
        send(live, one(trace, 1, None, 0, 10, CHAT))
        import time

        ends = time.monotonic() + 20
        while not stored(live, trace):
            assert time.monotonic() < ends
            time.sleep(0.01)
    finally:
        running.stop(10)
    assert running._thread is not None
    assert not running._thread.is_alive()
