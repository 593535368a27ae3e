"""Sizes and pruning of the real store."""

from __future__ import annotations

import os

import pytest

from collectors.receive.rows import TRACE_COLUMNS, TimeWindow, trace_batch
from collectors.store.errors import StoreError
from collectors.store.upkeep import prune, prune_aside, sizes
from tests.support.otlp import request, span
from tests.unit.collectors.live_receiver import DAY, NOW


def fill(store) -> None:
    spans = (span(n, NOW - age * DAY) for n, age in enumerate((0, 1, 2, 9, 10), 1))
    rows = trace_batch(request(*spans), TimeWindow(1, 2**62)).rows["otel_traces"]
    store.insert("otel_traces", TRACE_COLUMNS, rows, "t")


def test_sizes_are_of_the_tables_that_hold_rows(store):
    """Rows and bytes are those of the parts; empty tables are left out."""
    assert not [one for one in sizes(store) if one.table == "otel_traces"]
    fill(store)
    (one,) = [one for one in sizes(store) if one.table == "otel_traces"]
    assert one.rows == 5
    assert 0 < one.parts <= 5
    assert one.packed_bytes > 0 < one.plain_bytes


def test_pruning_drops_whole_old_days_and_says_which(store):
    """A dry run says the same and drops nothing; days that are kept stay; twice is nothing."""
    fill(store)
    today = "2026-01-01"
    said = prune(store, 2, today, only_say=True)
    assert said["otel_traces"] == 2
    assert prune(store, 2, today, only_say=False) == said
    assert prune(store, 2, today, only_say=False) == {}
    left = store.query(f"SELECT count() AS n FROM {store.database}.otel_traces", {})
    assert left[0]["n"] == 3


def test_roll_ups_outlive_the_requests_unless_told(store):
    """Pruning by days leaves them; with days of their own they go, too."""
    fill(store)
    days = f"SELECT uniqExact(toDate(Minute)) AS n FROM {store.database}.requests_1m"
    store.command(
        f"INSERT INTO {store.database}.requests (Timestamp, E2ENs) "
        f"SELECT fromUnixTimestamp64Nano(toInt64({NOW} - number * {DAY})), 1 FROM numbers(10)"
    )
    prune(store, 2, "2026-01-01", only_say=False)
    assert store.query(days, {})[0]["n"] == 10
    gone = prune(store, 2, "2026-01-01", rollup_days=4, only_say=False)
    assert set(gone) == {"requests_1m", "requests_1h"}
    assert store.query(days, {})[0]["n"] == 5


def test_old_files_that_were_set_aside_are_deleted(tmp_path):
    """By their age; a dry run says the same; others and a folder that is not there are left alone."""
    old, new, other = (tmp_path / name for name in ("a.pb", "b.pb", "notes.txt"))
    for file in (old, old.with_suffix(".json"), new, other):
        file.write_bytes(b"123")
    for file in (old, old.with_suffix(".json"), other):
        os.utime(file, ns=(NOW - 9 * DAY, NOW - 9 * DAY))
    os.utime(new, ns=(NOW, NOW))
    assert prune_aside(tmp_path, 3, NOW, only_say=True) == (2, 6)
    assert old.exists()
    assert prune_aside(tmp_path, 3, NOW, only_say=False) == (2, 6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.pb", "notes.txt"]
    assert prune_aside(tmp_path / "none", 3, NOW, only_say=False) == (0, 0)


def test_a_file_that_cannot_be_deleted_is_one_error(tmp_path):
    """It names the folder and what to look at."""
    (tmp_path / "a.pb").mkdir()
    os.utime(tmp_path / "a.pb", ns=(0, 0))
    with pytest.raises(StoreError, match="cannot be pruned"):
        prune_aside(tmp_path, 3, NOW, only_say=False)
