"""The writer: nothing is lost without being counted, whatever the store does."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.receive.rows import Batch, Row
from collectors.settings import CollectorSettings
from collectors.store.errors import StoreError
from collectors.write.writer import MOST_REFUSALS
from tests.support.clock import FakeClock
from tests.unit.collectors.scripted_store import (
    BROKEN,
    BUSY,
    LOST,
    OK,
    REFUSED,
    ScriptedStore,
    batch,
    made,
    running,
    spans,
    until,
)


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(st.sampled_from([OK, BUSY, LOST, REFUSED, BROKEN]), max_size=12),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    bad=st.sets(st.integers(0, 47), max_size=5),
    batch_rows=st.integers(1, 10),
    stop_s=st.sampled_from([0.0, 5.0]),
)
def test_every_row_is_written_refused_or_in_flight_at_every_instant(
    script, sizes, bad, batch_rows, stop_s
):
    """Over scripts of failures: the sum holds whenever looked at, and each row is counted once."""
    told = list(script)
    store = ScriptedStore(script, bad=lambda row: row[0] in bad)
    writer, counts = made(store, batch_rows=batch_rows)
    taken: list[int] = []
    seen: list[tuple[int, int]] = []

    def look(rows: list[Row]) -> None:
        now = spans(counts)
        settled = now["written"] + sum(now["refused"].values())
        assert now["received"] == settled + now["in_flight"]
        seen.append((now["in_flight"], len(rows)))

    store.look = look
    writer.start()
    for n, size in enumerate(sizes):
        rows = range(n * 6, n * 6 + size)
        if writer.offer(batch(*rows), 10):
            taken += rows
    if stop_s:
        until(lambda: not counts.snapshot()["spans"]["in_flight"])
    writer.stop(stop_s)
    now = spans(counts)
    assert now["received"] == len(taken)
    assert now["in_flight"] == 0
    assert all(held >= inserting for held, inserting in seen)
    stored = [row[0] for row in store.rows]
    assert len(stored) == len(set(stored))
    assert len(stored) == now["written"] or (LOST in told and not stop_s)
    assert set(stored) <= set(taken) - bad
    if stop_s:
        reasons = Counter(now["refused"])
        assert set(reasons) <= {"store_refused"}
        if not {REFUSED, BROKEN} & set(told):
            assert set(stored) == set(taken) - bad


def test_a_busy_store_is_asked_again_with_the_same_rows_and_token():
    """Exactly-once needs both to be the same; a lost reply does not double the rows."""
    store = ScriptedStore([BUSY, LOST, BUSY])
    with running(store) as (writer, counts):
        assert writer.offer(batch(1, 2), 10)
        until(lambda: spans(counts)["written"] == 2)
    assert len(store.calls) == 4
    assert len({(table, token, tuple(rows)) for table, token, rows in store.calls}) == 1
    assert store.rows == [(1,), (2,)]


def test_a_busy_store_is_not_hammered():
    """Pauses grow, also when the queue was filled, and also while the writer is being stopped."""
    store = ScriptedStore(always=BUSY)
    with running(store, batch_rows=1) as (writer, _):
        for n in range(5):
            writer.offer(batch(n), 1)
        until(lambda: writer.failing)
        time.sleep(0.3)
        tries = len(store.calls)
        assert tries < 60
        store.script, store.always = [BUSY] * 5, OK
        writer.stop(5)
    assert len(store.calls) - tries < 30


def test_what_cannot_be_written_in_time_is_refused_and_said():
    """After the deadline: store_unavailable; then one batch at a time is risked, not all."""
    store = ScriptedStore(always=BUSY)
    with running(store, retry_deadline_s=0.05) as (writer, counts):
        assert writer.offer(batch(1, 2, 3), 10)
        until(lambda: writer.failing)
        assert not writer.offer(batch(9), 10)
        until(lambda: spans(counts)["refused"] == {"store_unavailable": 3})
        until(lambda: writer.offer(batch(4), 10))
        assert not writer.offer(batch(5), 10)
        store.always = OK
        until(lambda: spans(counts)["in_flight"] == 0)
        until(lambda: writer.offer(batch(6), 10) and writer.offer(batch(7), 10))
    assert spans(counts)["refused"]["store_unavailable"] in (3, 4)


def test_only_the_bad_rows_of_a_batch_are_refused():
    """Two bad rows of a thousand cost two, and few more inserts."""
    store = ScriptedStore(bad=lambda row: row[0] in (17, 900))
    with running(store) as (writer, counts):
        writer.offer(batch(*range(1000)), 10)
        until(lambda: spans(counts)["in_flight"] == 0)
        assert spans(counts)["written"] == 998
        assert spans(counts)["refused"] == {"store_refused": 2}
    assert len(store.calls) < 50
    assert sorted(row[0] for row in store.rows) == sorted(set(range(1000)) - {17, 900})


@pytest.mark.parametrize("always", [REFUSED, BROKEN])
def test_a_store_that_refuses_everything_is_not_asked_row_by_row(always):
    """A missing table must not make a hundred thousand inserts out of one."""
    store = ScriptedStore(always=always)
    with running(store) as (writer, counts):
        writer.offer(batch(*range(20_000)), 10)
        until(lambda: spans(counts)["in_flight"] == 0)
        assert spans(counts)["refused"] == {"store_refused": 20_000}
    assert len(store.calls) <= 3 * MOST_REFUSALS


@pytest.mark.parametrize("then", [REFUSED, BROKEN])
def test_a_refusal_after_trouble_opens_the_door_again(then):
    """Busy, then refused for good: the writer takes new batches; it must not say 503 for ever."""
    store = ScriptedStore([BUSY, then])
    with running(store) as (writer, counts):
        assert writer.offer(batch(1), 10)
        until(lambda: spans(counts)["refused"] == {"store_refused": 1})
        until(lambda: writer.offer(batch(2), 10))
        until(lambda: spans(counts)["written"] == 1)


def test_a_full_queue_says_so_at_once():
    """Over the bound of bytes: False; one batch larger than the bound fits an empty queue."""
    gate = threading.Event()
    store = ScriptedStore(look=lambda _: gate.wait(10) and None)
    with running(store, queue_bytes=1024) as (writer, counts):
        assert writer.offer(batch(1), 5000)
        assert not writer.offer(batch(2), 1)
        until(lambda: store.calls)
        before = time.monotonic()
        assert not writer.offer(batch(3), 1)
        assert time.monotonic() - before < 5
        gate.set()
        until(lambda: spans(counts)["in_flight"] == 0)
        until(lambda: writer.offer(batch(4), 500) and writer.offer(batch(5), 500))
    assert spans(counts)["received"] == spans(counts)["written"] == 3


def test_stopping_before_starting_refuses_what_waits():
    """Nothing hangs, and the rows are counted."""
    writer, counts = made(ScriptedStore())
    assert writer.offer(batch(1, 2), 10)
    writer.stop(1)
    writer.stop(1)
    assert not writer.offer(batch(3), 10)
    assert spans(counts) == {
        "received": 2, "written": 0, "refused": {"shutdown": 2}, "set_aside": 0,
        "in_flight": 0,
    }  # fmt: skip


def test_stopping_writes_what_waits_and_may_be_done_twice():
    """All that was taken is in, without waiting for the interval."""
    store = ScriptedStore()
    writer, counts = made(store, batch_interval_s=60)
    writer.start()
    assert all(writer.offer(batch(n), 10) for n in range(50))
    before = time.monotonic()
    writer.stop(30)
    writer.stop(0)
    assert time.monotonic() - before < 30
    assert (spans(counts)["written"], len(store.calls)) == (50, 1)


def test_stopping_ends_with_its_deadline_and_counts_the_rest():
    """A store that stays busy: refused within the deadline, though retries could go on longer."""
    store = ScriptedStore(always=BUSY)
    writer, counts = made(store, batch_rows=2)
    writer.start()
    assert writer.offer(Batch({"otel_traces": [(n,) for n in range(6)], "otel_logs": [(9,)]}), 10)
    before = time.monotonic()
    writer.stop(0.2)
    assert time.monotonic() - before < 10
    refused = spans(counts)["refused"]
    assert sum(refused.values()) == 6
    assert set(refused) <= {"store_unavailable", "shutdown"}
    assert counts.snapshot()["logs"]["in_flight"] == 0


def test_many_small_requests_make_few_inserts():
    """Single spans at 1000/s: no more than 1.2 inserts for each interval and table (faults 80)."""
    store = ScriptedStore()
    interval = 0.1
    with running(store, batch_interval_s=interval) as (writer, counts):
        start = time.monotonic()
        n = 0
        while time.monotonic() - start < 1.0:
            assert writer.offer(batch(n), 200)
            n += 1
            time.sleep(0.001)
        took = time.monotonic() - start
        until(lambda: spans(counts)["in_flight"] == 0)
    assert len(store.calls) <= 1.2 * took / interval + 1
    assert all(b - a >= interval * 0.9 for a, b in pairwise(store.at_mono_s[:-1]))
    assert spans(counts)["written"] == n


def test_a_large_flush_is_cut_into_batches_of_each_table():
    """No insert has more rows than batch_rows, and a table's rows stand together."""
    store = ScriptedStore()
    with running(store, batch_rows=100, batch_interval_s=60) as (writer, counts):
        both = Batch({"otel_traces": [(n,) for n in range(250)], "engine_steps": [(0,)] * 3})
        assert writer.offer(both, 10)
        until(lambda: spans(counts)["in_flight"] == 0)
    assert [(table, len(rows)) for table, _, rows in store.calls] == [
        ("otel_traces", 100), ("otel_traces", 100), ("otel_traces", 50), ("engine_steps", 3),
    ]  # fmt: skip
    assert counts.snapshot()["logs"]["written"] == 3


def test_the_app_answers_503_with_retry_after_while_the_store_is_down():
    """A storage outage is retryable: never 200, never 500; then it is 200 again (faults 74)."""
    import asyncio

    import httpx

    from collectors.receive.http import OtlpHttp
    from tests.support.otlp import request, span

    store = ScriptedStore(always=BUSY)
    clock = FakeClock()
    with running(store) as (writer, counts):
        app = OtlpHttp(CollectorSettings(), writer, counts, clock)

        async def send(number: int) -> httpx.Response:
            body = request(span(number, clock.unix)).SerializeToString()
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                kind = {"content-type": "application/x-protobuf"}
                return await client.post("/v1/traces", content=body, headers=kind)

        assert asyncio.run(send(1)).status_code == 200
        until(lambda: writer.failing)
        answer = asyncio.run(send(2))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert spans(counts)["received"] == 1
        store.always = OK
        until(lambda: not writer.failing)
        assert asyncio.run(send(2)).status_code == 200
    assert spans(counts)["written"] == 2


def test_an_error_of_the_store_itself_is_no_reason_to_stop():
    """A closed store refuses; the thread lives and stops cleanly."""

    def closed(_: list[Row]) -> None:
        raise StoreError("the store is closed")

    store = ScriptedStore(look=closed)
    with running(store) as (writer, counts):
        writer.offer(batch(1, 2), 10)
        until(lambda: spans(counts)["refused"] == {"store_refused": 2})
        assert writer.offer(batch(3), 10)
