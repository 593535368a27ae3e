"""The spool: what was acknowledged is stored once, over kills, refusals and full disks."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collectors.counts import Counts
from collectors.receive.rows import FUTURE_NS, TimeWindow
from collectors.receive.signals import SIGNALS
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from collectors.spool.spool import Spool
from collectors.store.errors import StoreOwned, StoreTooLarge
from collectors.write.spooled import SpooledWriter
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import NOW
from tests.unit.collectors.scripted_store import BUSY, LOST, OK, REFUSED, ScriptedStore, until
from tracer.clock import SystemClock

TRACES = SIGNALS["/v1/traces"]
WINDOW = (1, NOW + FUTURE_NS)


class Killed(BaseException):
    """The process is gone: nothing after it runs."""


def offered(writer: SpooledWriter, *names: str, refused: dict[str, int] | None = None) -> bool:
    spans = (span(n, NOW, trace_id=bytes(15) + b"\1", name=name) for n, name in enumerate(names, 1))
    message = request(*spans)
    body = message.SerializeToString()
    origin = Origin("spans", body, WINDOW, ",".join(names).encode().hex(), refused or {})
    return writer.offer(TRACES.to_batch(message, TimeWindow(*WINDOW)), len(body), origin)


class Life:
    """One process: a spool and a writer over a store that outlives them."""

    def __init__(self, folder: Path, store: ScriptedStore, **told: object) -> None:
        limit = int(told.pop("limit", 1 << 30))  # type: ignore[call-overload]
        options = CollectorSettings(**{"batch_interval_s": 0.005, **told})  # type: ignore[arg-type]
        self.spool = Spool(folder, limit, "never")
        self.counts = Counts()
        self.counts.load(self.spool.state.counts.snapshot())
        self.writer = SpooledWriter(store, options, self.counts, SystemClock(), self.spool, 0.001)

    def spans(self) -> dict[str, object]:
        return self.counts.snapshot()["spans"]

    def kill(self) -> None:
        """Only what the system does for a dead process: its files and locks are let go."""
        for file in (*self.spool._segments.growing(), self.spool._journal):
            file.close()
        self.spool._owner.release()


def names(store: ScriptedStore) -> list[str]:
    return sorted(str(row[5]) for row in store.rows)


class KillingStore(ScriptedStore):
    """Dies before or after an insert when told."""

    kill_at = -1
    after = False

    def insert(self, table, columns, rows, token):
        self.kill_at -= 1
        if self.kill_at == 0 and not self.after:
            raise Killed
        super().insert(table, columns, rows, token)
        if self.kill_at == 0:
            raise Killed


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    kills=st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4),
    bad=st.sets(st.integers(0, 23), max_size=3),
    script=st.lists(st.sampled_from([OK, BUSY, LOST]), max_size=6),
    batch_rows=st.integers(1, 6),
)
def test_whenever_the_process_dies_every_span_is_stored_or_set_aside_once(
    bodies, kills, bad, script, batch_rows
):
    """Over kills before and after inserts, busy stores and bad rows; and the sums agree."""
    store = KillingStore(list(script), bad=lambda row: int(str(row[5])) in bad)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "spool"
        life = Life(root, store, batch_rows=batch_rows)
        sent = []
        for n, size in enumerate(bodies):
            some = [str(n * 4 + i) for i in range(size)]
            assert offered(life.writer, *some)
            sent += some
        for at, after in kills:
            store.kill_at, store.after = at, after
            try:
                life.writer._flush()
            except Killed:
                pass
            life.kill()
            life = Life(root, store, batch_rows=batch_rows + 1)  # settings may change between
        store.kill_at = -1
        life.writer._flush()
        good = sorted(name for name in sent if int(name) not in bad)
        assert names(store) == good
        now = life.spans()
        assert (now["received"], now["written"], now["refused"]) == (len(sent), len(good), {})
        assert (now["set_aside"], now["in_flight"]) == (len(sent) - len(good), 0)
        aside = b"".join(file.read_bytes() for file in root.glob("aside/*.pb"))
        kept = ExportTraceServiceRequest.FromString(aside).resource_spans
        found = [s.name for group in kept for scope in group.scope_spans for s in scope.spans]
        assert sorted(found) == sorted(set(sent) - set(good))
        assert not list(root.glob("*.pb"))
        life.kill()


def test_a_segment_is_one_valid_export_request(tmp_path):
    """Any OTLP reader takes the file as it is."""
    life = Life(tmp_path / "s", ScriptedStore())
    assert offered(life.writer, "a", "b")
    assert offered(life.writer, "c")
    (segment,) = (tmp_path / "s").glob("spans-*.pb")
    read = ExportTraceServiceRequest.FromString(segment.read_bytes())
    assert [s.name for g in read.resource_spans for sc in g.scope_spans for s in sc.spans] == ["a", "b", "c"]
    life.kill()


def test_a_torn_tail_is_no_body(tmp_path):
    """Killed while it wrote: what was whole is replayed, the torn rest was never acknowledged."""
    store = ScriptedStore()
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, "a")
    size = life.spool._journal.size
    assert offered(life.writer, "b")
    life.kill()
    with (tmp_path / "s" / "journal").open("r+b") as file:
        file.truncate(size + 20)
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, "b")
    life.writer._flush()
    assert names(store) == ["a", "b"]
    life.kill()


def test_a_damaged_body_is_counted(tmp_path):
    """A power cut may lose unsynced bytes: refused as spool_damaged, the others are written."""
    store = ScriptedStore()
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, "a", "b")
    assert offered(life.writer, "c")
    life.kill()
    (segment,) = (tmp_path / "s").glob("spans-*.pb")
    data = bytearray(segment.read_bytes())
    data[3] ^= 255
    segment.write_bytes(data)
    life = Life(tmp_path / "s", store)
    life.writer._flush()
    assert names(store) == ["c"]
    assert life.spans() == {
        "received": 3, "written": 1, "refused": {"spool_damaged": 2}, "set_aside": 0, "in_flight": 0,
    }  # fmt: skip
    life.kill()


def test_a_full_spool_turns_away_and_takes_again_when_there_is_room(tmp_path):
    """False at the limit, nothing counted as received; written bodies make room."""
    store = ScriptedStore()
    life = Life(tmp_path / "s", store, limit=300)
    taken = 0
    while offered(life.writer, f"name {taken}"):
        taken += 1
    assert 0 < taken < 10
    assert life.spans()["received"] == taken
    life.writer._flush()
    assert offered(life.writer, "another")
    life.kill()


def test_counts_and_digests_outlive_the_process(tmp_path):
    """Received, written and refused go on from where they were, and a body sent again is known."""
    store = ScriptedStore()
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, "a", "b", refused={"no_time": 2})
    life.counts.receive("spans", 2)
    life.counts.refuse("spans", 2, "no_time")
    life.spool.note_refused("logs", {"bad_step": 3})
    life.writer._flush()
    before = life.spans()
    life.kill()
    life = Life(tmp_path / "s", store)
    assert life.spans() == before
    assert life.counts.snapshot()["logs"]["refused"] == {"bad_step": 3}
    assert offered(life.writer, "a", "b")
    life.writer._flush()
    assert names(store) == ["a", "b"]
    assert life.spans() == before
    life.kill()


def test_the_journal_does_not_grow_for_ever(tmp_path, monkeypatch):
    """It is written anew with what is still of interest."""
    monkeypatch.setattr("collectors.spool.spool.JOURNAL_BYTES", 2000)
    life = Life(tmp_path / "s", ScriptedStore())
    for n in range(30):
        assert offered(life.writer, str(n))
        life.writer._flush()
    rows = (tmp_path / "s" / "journal").read_bytes().splitlines()
    assert len([row for row in rows if b'"k":"body"' in row]) <= 1
    assert life.spans()["written"] == 30
    life.kill()


def test_rows_that_need_too_much_memory_are_halved_at_once_and_at_last_set_aside(tmp_path):
    """Memory: no minute of retries, good rows are written, the bad one lies in a file."""

    def look(rows):
        if len(rows) > 2 or any(row[5] == "huge" for row in rows):
            raise StoreTooLarge("the store lacks memory for this")

    store = ScriptedStore(look=look)
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, "a", "b", "huge", "c", "d")
    life.writer._flush()
    assert names(store) == ["a", "b", "c", "d"]
    assert life.spans()["set_aside"] == 1
    (why,) = (tmp_path / "s" / "aside").glob("*.json")
    assert "lacks memory" in json.loads(why.read_text())["reason"]
    assert len(store.calls) < 15
    life.kill()


def test_what_a_store_refuses_whole_is_set_aside_and_not_lost(tmp_path):
    """A missing table: every span lies in files, in few inserts."""
    store = ScriptedStore(always=REFUSED)
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, *map(str, range(900)))
    life.writer._flush()
    assert life.spans()["set_aside"] == 900
    assert len(store.calls) < 600
    life.kill()


@pytest.mark.parametrize(
    "bad", [range(300), range(700, 1000), range(350, 650), range(0, 1000, 2)], ids=str
)
def test_good_rows_are_written_however_many_are_bad(tmp_path, bad):
    """More bad rows than refusals that are looked into, in front, at the end, in the middle, between."""
    store = ScriptedStore(bad=lambda row: int(str(row[5])) in bad)
    life = Life(tmp_path / "s", store)
    assert offered(life.writer, *map(str, range(1000)))
    life.writer._flush()
    assert len(store.rows) == 1000 - len(bad)
    assert life.spans()["written"] == 1000 - len(bad)
    assert life.spans()["set_aside"] == len(bad)
    life.kill()


def test_a_store_that_is_down_costs_nothing_but_waiting(tmp_path):
    """Bodies are taken while it is down, stopping leaves them in flight, the next life writes them."""
    store = ScriptedStore(always=BUSY)
    life = Life(tmp_path / "s", store, retry_deadline_s=0.01)
    life.writer.start()
    assert offered(life.writer, "a")
    until(lambda: life.writer.failing)
    assert offered(life.writer, "b")
    life.writer.stop(0.05)
    assert not offered(life.writer, "c")
    assert life.spans()["in_flight"] == 2
    store.always = OK
    life = Life(tmp_path / "s", store)
    life.writer.start()
    until(lambda: life.spans()["in_flight"] == 0)
    life.writer.stop(5)
    assert names(store) == ["a", "b"]


def test_a_spool_has_one_owner(tmp_path):
    """A second process is told who has it."""
    life = Life(tmp_path / "s", ScriptedStore())
    with pytest.raises(StoreOwned, match="is owned by process"):
        Spool(tmp_path / "s", 1 << 20, "never")
    life.kill()


def test_a_steady_trickle_makes_few_inserts(tmp_path):
    """Single spans as fast as they can be taken for a second: an insert an interval (faults 80)."""
    store = ScriptedStore(look=lambda _: time.sleep(0.005))
    life = Life(tmp_path / "s", store, batch_interval_s=0.1)
    life.writer.start()
    began, sent = time.monotonic(), 0
    while time.monotonic() < began + 1:
        assert offered(life.writer, str(sent))
        sent += 1
    took = time.monotonic() - began
    life.writer.stop(10)
    assert len(store.rows) == sent > 100
    assert len(store.calls) <= took / 0.1 + 3
