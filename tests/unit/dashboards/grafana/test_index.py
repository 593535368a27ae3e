"""How much of the tables the queries read: a month is stored, an hour is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.grafana import Range, View
from tests.unit.dashboards.grafana.boards import documents, panel, variables
from tests.unit.dashboards.grafana.conftest import UNTOUCHED, Grafana

ROWS = 150_000
GRANULE = 128
"""Rows; 8192 in a real store. So small a table has the granules of one of ten million rows."""
DAYS = 30
LAST_DAY = 1_767_268_800  # 2026-01-01T12:00:00Z, DAYS after the first row
HOUR = Range(LAST_DAY * 1000 - 3_600_000, LAST_DAY * 1000)


@pytest.fixture(scope="module", autouse=True)
def filled(grafana: Grafana) -> Iterator[None]:
    """Requests of two models, evenly over 30 days; only what indexes look at is filled.

    The table is the real one but for the size of its granules.
    """
    (made,) = grafana.rows("SHOW CREATE TABLE requests")
    statement = str(made["statement"]).replace(
        "index_granularity = 8192", f"index_granularity = {GRANULE}"
    )
    assert str(GRANULE) in statement
    grafana.client.command("DROP TABLE requests")
    grafana.client.command(statement)
    begin = LAST_DAY - DAYS * 86_400
    grafana.client.command(
        "INSERT INTO requests (Timestamp, TraceId, Model, Operation, Source, Route, ServiceInstance) "
        f"SELECT toDateTime64({begin}, 9, 'UTC') + number * {DAYS * 86_400 / ROWS}, hex(number), "
        "if(number % 2 = 0, 'a', 'b'), 'chat', 'engine', 'r', 'p' "
        f"FROM numbers({ROWS}) SETTINGS max_partitions_per_insert_block = 0"
    )
    yield
    grafana.store.empty()


def granules(grafana: Grafana, sql: str) -> tuple[int, int]:
    """Read and stored granules, over all reads of the plan from ``requests``."""
    (row,) = grafana.rows(f"EXPLAIN PLAN json = 1, indexes = 1 {sql}")
    read = stored = 0

    def walk(node: Any) -> None:
        nonlocal read, stored
        if isinstance(node, dict):
            if node.get("Indexes"):
                read += node["Indexes"][-1]["Selected Granules"]
                stored += node["Indexes"][0]["Initial Granules"]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(row["explain"]))
    return read, stored


ASKED = {
    "a stat": panel("overview", "E2E, $percentile").sql,
    "a series": panel("overview", "Stages over time").sql,
    "the list": panel("requests", "Slowest or newest requests").sql,
    "goodput": panel("slo", "Goodput").sql,
    "models": variables(documents()["overview"])["model"],
    "tags": variables(documents()["overview"])["tag"],
}


@pytest.mark.parametrize("model", [["$__all"], ["a"]], ids=["all models", "one model"])
@pytest.mark.parametrize("what", ASKED)
def test_an_hour_reads_an_hour(grafana: Grafana, what: str, model: list[str]) -> None:
    """At most 1 % of the stored granules are read for an hour of a month (0.14 % of the time)."""
    sql = View(HOUR, {**UNTOUCHED, "model": model}).expand(ASKED[what])
    read, stored = granules(grafana, sql)
    assert stored > 1000
    assert 0 < read <= stored / 100, (read, stored)
