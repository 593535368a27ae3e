"""Sizes and pruning of the real store."""

from __future__ import annotations

from collectors.receive.rows import TRACE_COLUMNS, TimeWindow, trace_batch
from collectors.store.upkeep import prune, sizes
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
