"""An embedded ClickHouse with the tables of the store, and rows that tests write by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import clickhouse_connect
import pytest

BASE_UNIX_NS = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
NOW_UNIX_NS = BASE_UNIX_NS + 3600 * 1_000_000_000
STAGES = ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver", "unattributed")

REQUESTS = """\
CREATE TABLE requests (
  Timestamp DateTime64(9,'UTC'), TraceId String, SpanId String,
  ServiceName LowCardinality(String), ServiceInstance String,
  Model LowCardinality(String), Operation LowCardinality(String), Route LowCardinality(String),
  HttpStatus UInt16, Status LowCardinality(String), ErrorType LowCardinality(String),
  FinishReason LowCardinality(String), Stream Bool, Choices UInt16,
  E2ENs UInt64, PromptNs UInt64, HandoffNs UInt64, RetrievalNs UInt64, QueueNs UInt64,
  PrefillNs UInt64, DecodeNs UInt64, PreemptedNs UInt64, ToolNs UInt64, DeliverNs UInt64,
  UnattributedNs UInt64, StageCounts Map(LowCardinality(String), UInt16),
  FirstChunkNs Nullable(UInt64), FirstTokenNs Nullable(UInt64), FirstAnswerNs Nullable(UInt64),
  TpotNs Nullable(Float64), ItlNs Array(UInt64), ItlKind LowCardinality(String),
  InputTokens Nullable(UInt32), OutputTokens Nullable(UInt32), CachedTokens Nullable(UInt32),
  ReasoningTokens Nullable(UInt32), Preemptions UInt16, InFlight UInt32,
  Running Nullable(UInt32), Waiting Nullable(UInt32), Warm Nullable(Bool),
  ColdReason LowCardinality(String), Source LowCardinality(String), Repairs Array(String),
  Tags Map(LowCardinality(String), String), Cost Nullable(Float64)
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (Model, toStartOfHour(Timestamp), Timestamp)"""
ENGINE_STEPS = """\
CREATE TABLE engine_steps (
  Timestamp DateTime64(9,'UTC'), ServiceName LowCardinality(String), ServiceInstance String,
  Model LowCardinality(String), Engine UInt16, DurationNs UInt64, PrefillRequests UInt32,
  PrefillTokens UInt32, DecodeRequests UInt32, DecodeTokens UInt32, Running UInt32,
  Waiting UInt32, KvCacheUsage Float32, Preempted UInt32
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceInstance, Engine, Timestamp)"""
OTEL_TRACES = """\
CREATE TABLE otel_traces (
  Timestamp DateTime64(9,'UTC'), TraceId String, SpanId String, ParentSpanId String,
  TraceState String, SpanName LowCardinality(String), SpanKind LowCardinality(String),
  ServiceName LowCardinality(String), ResourceAttributes Map(LowCardinality(String), String),
  ScopeName String, ScopeVersion String, SpanAttributes Map(LowCardinality(String), String),
  Duration UInt64, StatusCode LowCardinality(String), StatusMessage String,
  Events Nested (Timestamp DateTime64(9,'UTC'), Name LowCardinality(String),
    Attributes Map(LowCardinality(String), String)),
  Links Nested (TraceId String, SpanId String, TraceState String,
    Attributes Map(LowCardinality(String), String))
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))"""
TRACE_TIMES = """\
CREATE TABLE otel_traces_trace_id_ts (TraceId String, Start DateTime('UTC'), End DateTime('UTC'))
ENGINE = MergeTree PARTITION BY toDate(Start) ORDER BY (TraceId, Start)"""
TRACE_TIMES_MV = """\
CREATE MATERIALIZED VIEW otel_traces_trace_id_ts_mv TO otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End FROM otel_traces
WHERE TraceId != '' GROUP BY TraceId"""
SUMS = """\
CREATE TABLE otel_metrics_sum (
  ResourceAttributes Map(LowCardinality(String), String), ResourceSchemaUrl String,
  ScopeName String, ScopeVersion String, ScopeAttributes Map(LowCardinality(String), String),
  ScopeDroppedAttrCount UInt32, ScopeSchemaUrl String, ServiceName LowCardinality(String),
  MetricName String, MetricDescription String, MetricUnit String,
  Attributes Map(LowCardinality(String), String),
  StartTimeUnix DateTime64(9,'UTC'), TimeUnix DateTime64(9,'UTC'), Value Float64, Flags UInt32,
  AggregationTemporality Int32, IsMonotonic Bool
) ENGINE = MergeTree PARTITION BY toDate(TimeUnix)
ORDER BY (ServiceName, MetricName, Attributes, toUnixTimestamp64Nano(TimeUnix))"""
TABLES = {
    "requests": REQUESTS,
    "engine_steps": ENGINE_STEPS,
    "otel_traces": OTEL_TRACES,
    "otel_traces_trace_id_ts": TRACE_TIMES,
    "otel_traces_trace_id_ts_mv": TRACE_TIMES_MV,
    "otel_metrics_sum": SUMS,
}


class HandStore:
    """A store whose rows a test writes itself; times are ns from ``BASE_UNIX_NS``."""

    def __init__(self, client: Any, database: str) -> None:
        self.client = client
        self.database = database
        self._made = 0

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        found = self.client.query(sql, parameters=dict(params))
        return [dict(zip(found.column_names, row, strict=True)) for row in found.result_rows]

    def empty(self) -> None:
        """Take away all rows; cheap for tables that have none."""
        for name, ddl in TABLES.items():
            if ddl.startswith("CREATE TABLE") and self._holds(name):
                self.truncate(name)

    def _holds(self, table: str) -> bool:
        found = self.client.query(f"SELECT count() FROM {self.database}.{table}").result_rows
        return bool(found[0][0])

    def truncate(self, table: str) -> None:
        self.client.command(f"TRUNCATE TABLE {self.database}.{table}")

    def insert(self, table: str, rows: list[dict[str, object]]) -> None:
        body = "\n".join(json.dumps(row) for row in rows).encode()
        self.client.raw_insert(f"{self.database}.{table}", insert_block=body, fmt="JSONEachRow")

    def requests(self, *rows: Mapping[str, object]) -> None:
        self.insert("requests", [self.request(row) for row in rows])

    def request(self, given: Mapping[str, object]) -> dict[str, object]:
        """A whole row: lower-case keys are ``start`` and stage names (ns), others columns."""
        self._made += 1
        stages = {name: int(given.get(name, 0)) for name in STAGES}  # type: ignore[call-overload]
        row: dict[str, object] = {
            "Timestamp": when(int(given.get("start", 0))),  # type: ignore[call-overload]
            "TraceId": f"{self._made:032x}",
            "SpanId": f"{self._made:016x}",
            "ServiceName": "proxy",
            "ServiceInstance": "a",
            "Model": "m",
            "Operation": "chat",
            "Route": "/v1/chat/completions",
            "HttpStatus": 200,
            "Status": "ok",
            "ErrorType": "",
            "FinishReason": "stop",
            "Stream": True,
            "Choices": 1,
            "E2ENs": sum(stages.values()),
            **{f"{name.capitalize()}Ns": ns for name, ns in stages.items()},
            "HandoffNs": 0,
            "PreemptedNs": 0,
            "StageCounts": {n: 1 for n, ns in stages.items() if ns and n != "unattributed"},
            **dict.fromkeys(("FirstChunkNs", "FirstTokenNs", "FirstAnswerNs", "TpotNs")),
            "ItlNs": [],
            "ItlKind": "",
            **dict.fromkeys(("InputTokens", "OutputTokens", "CachedTokens", "ReasoningTokens")),
            "Preemptions": 0,
            "InFlight": 0,
            "Running": None,
            "Waiting": None,
            "Warm": None,
            "ColdReason": "",
            "Source": "engine",
            "Repairs": [],
            "Tags": {},
            "Cost": None,
        }
        row.update({name: value for name, value in given.items() if not name[0].islower()})
        return row

    def spans(self, *rows: Mapping[str, object]) -> None:
        """Spans: ``start`` and ``duration`` in ns, other keys are columns."""
        made: list[dict[str, object]] = []
        for given in rows:
            row: dict[str, object] = {
                "Timestamp": when(int(given.get("start", 0))),  # type: ignore[call-overload]
                "TraceId": "",
                "SpanId": "",
                "ParentSpanId": "",
                "TraceState": "",
                "SpanName": "span",
                "SpanKind": "Internal",
                "ServiceName": "proxy",
                "ResourceAttributes": {},
                "ScopeName": "",
                "ScopeVersion": "",
                "SpanAttributes": {},
                "Duration": given.get("duration", 0),
                "StatusCode": "Unset",
                "StatusMessage": "",
                "Events.Timestamp": [],
                "Events.Name": [],
                "Events.Attributes": [],
            }
            row.update({name: value for name, value in given.items() if not name[0].islower()})
            made.append(row)
        self.insert("otel_traces", made)

    def told(self, metric: str, value: int, at: int, **more: str) -> None:
        """One cumulative point; ``more``: ``instance``, ``reason``, ``started`` (ns)."""
        reason = more.get("reason")
        row: dict[str, object] = {
            "ResourceAttributes": {"service.instance.id": more.get("instance", "a")},
            "ServiceName": "proxy",
            "MetricName": metric,
            "Attributes": {"reason": reason} if reason else {},
            "StartTimeUnix": when(int(more.get("started", "-3600000000000"))),
            "TimeUnix": when(at),
            "Value": float(value),
            "AggregationTemporality": 2,
            "IsMonotonic": True,
        }
        self.insert("otel_metrics_sum", [row])


def when(offset_ns: int) -> str:
    """``BASE_UNIX_NS + offset_ns`` as ClickHouse reads it, to the nanosecond."""
    seconds, ns = divmod(BASE_UNIX_NS + offset_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09d}"


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one embedded engine that a process may have."""
    client = clickhouse_connect.get_client(
        interface="chdb", path=str(tmp_path_factory.mktemp("chdb"))
    )
    for name in ("compile_expressions", "compile_aggregate_expressions"):
        client.set_client_setting(name, 0)  # compiling takes longer than so small a query
    yield client
    client.close()


@contextmanager
def database(engine: Any, name: str) -> Iterator[HandStore]:
    """Empty tables in a database of their own."""
    engine.command(f"CREATE DATABASE {name}")
    for ddl in TABLES.values():
        engine.command(re.sub(rf"\b({'|'.join(TABLES)})\b", rf"{name}.\1", ddl))
    yield HandStore(engine, name)
    engine.command(f"DROP DATABASE {name}")


@pytest.fixture(scope="package")
def package_store(engine: Any) -> Iterator[HandStore]:
    """The tables that tests use one after the other."""
    with database(engine, "each") as made:
        yield made


@pytest.fixture
def store(package_store: HandStore) -> Iterator[HandStore]:
    """Empty tables for one test."""
    yield HandStore(package_store.client, package_store.database)
    package_store.empty()


@pytest.fixture(scope="module")
def module_store(engine: Any, request: pytest.FixtureRequest) -> Iterator[HandStore]:
    """A store for tests of one module that only read what a fixture wrote."""
    with database(engine, f"m{abs(hash(request.node.nodeid)):x}") as made:
        yield made
