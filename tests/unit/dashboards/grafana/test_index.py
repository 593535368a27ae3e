"""How much of the tables the queries read: a month is stored, an hour is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.grafana import Range, View
from tests.unit.dashboards.grafana.boards import documents, panel, panels, variables
from tests.unit.dashboards.grafana.conftest import UNTOUCHED, Grafana

ROWS = 150_000
GRANULE = 128
"""Rows; 8192 in a real store. So small a table has the granules of one of ten million rows."""
DAYS = 30
LAST_DAY = 1_767_268_800  # 2026-01-01T12:00:00Z, DAYS after the first row
HOUR = Range(LAST_DAY * 1000 - 3_600_000, LAST_DAY * 1000)


SPANS = 100_000
WANTED = f"{77_777:032x}"


@pytest.fixture(scope="module", autouse=True)
def filled(grafana: Grafana) -> Iterator[None]:
    """Requests of two models and spans of many traces, evenly over 30 days.

    Only what indexes look at is filled, and granules are small; else the tables are the real ones.
    """
    small_granules(grafana, "requests")
    grafana.client.command(
        "INSERT INTO requests (Timestamp, TraceId, Model, Operation, Source, Route, ServiceInstance) "
        f"SELECT {evenly(ROWS)}, hex(number), if(number % 2 = 0, 'a', 'b'), 'chat', 'engine', 'r', 'p' "
        f"FROM numbers({ROWS}) SETTINGS max_partitions_per_insert_block = 0"
    )
    small_granules(grafana, "otel_traces")
    grafana.client.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, SpanName, ServiceName) "
        f"SELECT {evenly(SPANS)}, leftPad(lower(hex(number)), 32, '0'), if(number % 2 = 0, 'a', 'b'), 's' "
        f"FROM numbers({SPANS}) SETTINGS max_partitions_per_insert_block = 0"
    )
    grafana.client.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    grafana.client.command(
        "INSERT INTO otel_traces_trace_id_ts SELECT TraceId, min(Timestamp), max(Timestamp) "
        f"FROM otel_traces WHERE TraceId = '{WANTED}' GROUP BY TraceId"
    )
    yield
    grafana.store.empty()


def evenly(rows: int) -> str:
    return f"toDateTime64({LAST_DAY - DAYS * 86_400}, 9, 'UTC') + number * {DAYS * 86_400 / rows}"


def small_granules(grafana: Grafana, table: str) -> None:
    (made,) = grafana.rows(f"SHOW CREATE TABLE {table}")
    wanted = f"index_granularity = {GRANULE}"
    statement = str(made["statement"]).replace("index_granularity = 8192", wanted)
    assert wanted in statement
    grafana.client.command(f"DROP TABLE {table}")
    grafana.client.command(statement)


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


BY_TIME = {
    f"{one.board}: {one.title}": one.sql
    for one in panels() if one.board != "trace" and "FROM requests" in one.sql and not one.whole.get("repeat")
} | {
    f"{board}: ${name}": sql
    for board, document in documents().items()
    for name, sql in variables(document).items() if "FROM requests" in sql
}  # fmt: skip


@pytest.mark.parametrize("model", [["$__all"], ["a"]], ids=["all models", "one model"])
@pytest.mark.parametrize("what", BY_TIME)
def test_an_hour_reads_an_hour(grafana: Grafana, what: str, model: list[str]) -> None:
    """At most 1 % of the stored granules are read for an hour of a month (0.14 % of the time)."""
    sql = View(HOUR, {**UNTOUCHED, "model": model}).expand(BY_TIME[what])
    read, stored = granules(grafana, sql)
    assert stored > 1000
    assert 0 < read <= stored / 100, (read, stored)


def test_a_trace_reads_next_to_nothing(grafana: Grafana) -> None:
    """The spans of one trace are found by its time and its id, wherever in the month it was."""
    sql = View(HOUR, {**UNTOUCHED, "traceId": WANTED}).expand(panel("trace", "Spans").sql)
    assert [row["traceID"] for row in grafana.rows(sql)] == [WANTED]
    read, stored = granules(grafana, sql)
    assert stored > 700
    assert 0 < read <= stored / 100, (read, stored)
