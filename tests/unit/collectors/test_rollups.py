"""The roll-ups: fed with every insert once, and telling what the requests tell."""

from __future__ import annotations

import random

import pytest

from collectors.receive.rows import TimeWindow, trace_batch
from collectors.receive.signals import COLUMNS
from collectors.store.migrate import load_migrations, migrate, rollback, verify
from collectors.store.rollups import make_days, mend
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW


def record(n: int, start_ns: int, decode_ns: int | None = None, **more: object):
    decode_ns, rest_ns = 5_000_000 * n if decode_ns is None else decode_ns, 1_000_000 * n
    told = {
        "stagelens.record.version": 1, "stagelens.model": "m", "stagelens.operation": "chat",
        "stagelens.status": "ok", "stagelens.stage.decode_ns": decode_ns,
        "stagelens.e2e_ns": decode_ns + rest_ns, "stagelens.stage.unattributed_ns": rest_ns,
        "stagelens.tokens.output": 10, "stagelens.source": "engine",
        **more,
    }  # fmt: skip
    return span(n, start_ns, told)


def write(store, token: str, *spans) -> None:
    rows = trace_batch(request(*spans), TimeWindow(1, 2**62)).rows["otel_traces"]
    store.insert("otel_traces", COLUMNS["otel_traces"], rows, token)


def rolled(store, table: str, quantity: str) -> dict[str, object]:
    return store.query(
        "SELECT sum(N) AS n, sum(Sum) AS total, max(Max) AS most, "
        "quantilesTDigestMerge(0.5, 0.99)(Sketch) AS q "
        f"FROM {store.database}.{table} WHERE Quantity = {{q:String}}", {"q": quantity},
    )[0]  # fmt: skip


@pytest.mark.parametrize("table", ["requests_1m", "requests_1h"])
def test_a_batch_that_is_inserted_again_adds_nothing(store, table):
    """The first reply was lost: 100 requests and 1,000 tokens, at once, raw and rolled up (faults 79)."""
    spans = [record(n, NOW + n * 10**9) for n in range(1, 101)]
    for _ in range(3):
        write(store, "same", *spans)
    raw = store.query(f"SELECT count() AS n, sum(OutputTokens) AS t FROM {store.database}.requests", {})[0]
    assert (raw["n"], raw["t"]) == (100, 1000)
    assert rolled(store, table, "e2e")["n"] == 100
    assert rolled(store, table, "output_tokens")["total"] == 1000
    write(store, "another", *spans)
    assert rolled(store, table, "e2e")["n"] == 200


def test_sketches_of_many_inserts_tell_what_the_requests_tell(store):
    """Sum, most and count exactly; percentiles within half a percent; what a request lacks is not counted."""
    choose = random.Random(3)
    at = 0
    for batch in range(10):
        some = []
        for _ in range(200):
            at += 1
            ns = round(choose.lognormvariate(18, 0.7))
            some.append(record(at, NOW + at * 10**8, decode_ns=ns))
        write(store, f"b{batch}", *some)
    exact = store.query(
        "SELECT count() AS n, sum(DecodeNs) AS total, max(DecodeNs) AS most, "
        f"quantilesExactInclusive(0.5, 0.99)(DecodeNs) AS q FROM {store.database}.requests", {},
    )[0]  # fmt: skip
    for table in ("requests_1m", "requests_1h"):
        found = rolled(store, table, "decode")
        assert (found["n"], found["total"], found["most"]) == (exact["n"], exact["total"], exact["most"])
        assert found["q"] == pytest.approx(exact["q"], rel=0.005)
        assert rolled(store, table, "tool")["n"] == 0
        assert rolled(store, table, "ttft")["n"] == 0


def test_requests_from_before_the_rollups_are_in_them_once(empty_store):
    """The step takes in what lies there, also when it was cut off and is run again; undone it leaves them."""
    known = load_migrations()
    before = [one for one in known if one.number < 6]
    migrate(empty_store, before)
    write(empty_store, "t", *(record(n, NOW) for n in range(1, 6)))
    migrate(empty_store, known)
    verify(empty_store, known)
    assert rolled(empty_store, "requests_1m", "e2e")["n"] == 5
    write(empty_store, "u", record(6, NOW))
    assert rolled(empty_store, "requests_1h", "e2e")["n"] == 6
    assert 6 in rollback(empty_store, 5, known)
    migrate(empty_store, known)
    assert rolled(empty_store, "requests_1m", "e2e")["n"] == 6


def test_a_replaced_request_is_in_its_sketches_once_after_the_next_check(store):
    """A row that was replaced, and rows that were deleted: the minutes that differ are made anew."""
    now_s = NOW // 10**9 + 1000
    write(store, "a", *(record(n, NOW + n * 10**9) for n in range(1, 4)))
    write(store, "b", record(1, NOW + 10**9, decode_ns=77))
    store.command(f"DELETE FROM {store.database}.requests WHERE DecodeNs = 5000000")
    assert rolled(store, "requests_1m", "e2e")["n"] == 4
    assert mend(store, now_s + 86_400) == 2
    for table in ("requests_1m", "requests_1h"):
        assert rolled(store, table, "e2e")["n"] == 3
        assert rolled(store, table, "decode")["total"] == 77 + 10_000_000 + 15_000_000
    assert mend(store, now_s + 86_400) == 0


def test_minutes_that_still_get_requests_are_left_alone(store):
    """A check in the same minute mends nothing."""
    write(store, "a", record(1, NOW))
    store.command(f"DELETE FROM {store.database}.requests WHERE true")
    assert mend(store, NOW // 10**9 + 60) == 0
    assert rolled(store, "requests_1m", "e2e")["n"] == 1


def test_days_that_are_over_are_merged_out_of_their_hours(store):
    """Once; again when their hours were mended; the day that is going on is left alone."""
    day = NOW // (86_400 * 10**9) * 86_400
    at = day * 10**9
    write(store, "a", *(record(n, at + n * 3600 * 10**9) for n in range(1, 6)))
    write(store, "b", record(9, at + 86_400 * 10**9))
    assert make_days(store, day + 86_400 + 60) == 0
    assert make_days(store, day + 86_400 + 3600) == 1
    assert make_days(store, day + 86_400 + 3600) == 0
    hours, days = rolled(store, "requests_1h", "decode"), rolled(store, "requests_1d", "decode")
    assert (days["n"], days["total"], days["most"]) == (5, 75_000_000, 25_000_000)
    assert (hours["n"], hours["total"]) == (6, 120_000_000)
    store.command(f"DELETE FROM {store.database}.requests WHERE DecodeNs = 5000000")
    assert mend(store, day + 86_400 + 3600) == 2
    assert make_days(store, day + 86_400 + 3600) == 1
    assert rolled(store, "requests_1d", "decode")["total"] == 70_000_000
