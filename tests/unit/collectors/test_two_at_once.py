"""Two plans of plain spans at the same time, and the same route into a server."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from collectors.counts import Counts
from collectors.receive.rows import Batch
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from collectors.spool.spool import Spool
from collectors.write.spooled import SpooledWriter
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW
from tests.unit.collectors.scripted_store import ScriptedStore
from tests.unit.collectors.test_spool import WINDOW
from tests.unit.collectors.test_store import run_python
from tracer.clock import SystemClock

BODY_SPANS = 2


class Meeting:
    """Takes plain spans; the first two writes wait for each other."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.barrier = threading.Barrier(2)
        self.problem = problem
        self.lock = threading.Lock()
        self.kept: dict[str, list[bytes]] = {}
        self.calls = 0

    def write(self, bodies: Iterable[tuple[bytes, int]], token: str) -> None:
        with self.lock:
            self.calls += 1
            call = self.calls
        if call <= 2:
            self.barrier.wait(30)
        if call == 2 and self.problem is not None:
            raise self.problem
        with self.lock:
            self.kept[token] = [body for body, _ in bodies]


def spool_of(
    tmp_path, plain: Meeting, bodies: int
) -> tuple[SpooledWriter, Counts, ScriptedStore, list[bytes]]:
    """A writer before whose start ``bodies`` lie in the spool; a batch is four of them."""
    settings = CollectorSettings(batch_rows=4 * BODY_SPANS, plain_from_spans=1)
    counts, store = Counts(), ScriptedStore()
    spool = Spool(tmp_path / "spool", 1 << 30, "never")
    writer = SpooledWriter(store, settings, counts, SystemClock(), spool, 0.001, plain=plain)
    sent = []
    for n in range(bodies):
        body = request(*(span(n * BODY_SPANS + i + 1, NOW) for i in range(BODY_SPANS))).SerializeToString()
        assert writer.offer(Batch(plain=BODY_SPANS), len(body), Origin("spans", body, WINDOW, str(n), {}))
        sent.append(body)
    return writer, counts, store, sent


def test_where_much_waits_two_plans_are_written_at_the_same_time(tmp_path):
    """The first two writes meet; every body is in one write, every span counted once."""
    plain = Meeting()
    writer, counts, store, sent = spool_of(tmp_path, plain, 64)
    writer._flush()
    assert sorted(b for bodies in plain.kept.values() for b in bodies) == sorted(sent)
    assert len(plain.kept) == 4  # a plan is four batches
    now = counts.snapshot()["spans"]
    assert (now["received"], now["written"], now["in_flight"]) == (128, 128, 0)
    assert store.rows == []
    writer.stop(5)


def test_a_fault_in_one_of_both_costs_the_other_nothing(tmp_path):
    """What could not be read as bodies goes as rows; each span is stored once by either way."""
    plain = Meeting(RuntimeError("a fault of ours"))
    writer, counts, store, _ = spool_of(tmp_path, plain, 32)
    writer._flush()
    kept = [b for bodies in plain.kept.values() for b in bodies]
    assert len(kept) == 16
    assert len(store.rows) == 16 * BODY_SPANS
    now = counts.snapshot()["spans"]
    assert (now["received"], now["written"], now["in_flight"]) == (64, 64, 0)
    writer.stop(5)


def test_a_server_gets_the_same_rows_once_for_a_token():
    """An embedded engine makes the block, the server takes it: here both are one in memory."""
    code = """
        import tempfile
        from pathlib import Path
        import clickhouse_connect
        from collectors.store.client import Store
        from collectors.store.migrate import migrate
        from collectors.store.url import StoreUrl
        from collectors.write.plain import PlainSpans
        from tests.conftest import FOREVER
        from tests.support.clock import FakeClock
        from tests.support.otlp import request, span
        from tests.unit.collectors.live_receiver import NOW
        server = clickhouse_connect.get_client(interface="chdb")
        server.command("CREATE DATABASE otel")
        store = Store(server, StoreUrl.parse("clickhouse://h/otel"), FOREVER, None)
        migrate(store)
        body = request(*(span(n + 1, NOW, {"n": n}) for n in range(3))).SerializeToString()
        for token in "aab":
            PlainSpans(store, Path(tempfile.mkdtemp()), FakeClock()).write([(body, 3)], token)
        row = store.query("SELECT count() AS n, uniqExact(SpanId) AS u FROM otel.otel_traces", {})[0]
        print(row["n"], row["u"])
        store.close()
    """
    assert run_python(code) == "6 3"
