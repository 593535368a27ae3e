"""Which requests have a quantity, as the store tells it."""

from __future__ import annotations

from dashboards.queries.measures import STAGES, times_run
from tests.unit.dashboards.conftest import HandStore
from tracer.stages import Stage


def test_how_often_each_stage_ran_is_what_the_map_says(store: HandStore):
    """Also 0 that was written, and stages of which nothing was written."""
    counts: list[dict[str, int]] = [{}, {"prompt": 1}, {"tool": 3, "decode": 2, "queue": 0}]
    store.requests(*({"start": n, "StageCounts": one} for n, one in enumerate(counts)))
    ours = ", ".join(times_run(stage) for stage in Stage)
    rows = store.query(
        f"SELECT [{ours}] AS times FROM {store.database}.requests ORDER BY Timestamp", {}
    )
    assert [row["times"] for row in rows] == [
        [one.get(stage, 0) for stage in Stage] for one in counts
    ]


def test_no_stage_reads_the_map_of_stages_by_a_key():
    """Of each key that stands in a question ClickHouse would read the whole map once more."""
    assert [one.name for one in STAGES if "StageCounts[" in one.has] == []
