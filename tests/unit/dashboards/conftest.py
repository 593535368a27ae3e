"""An embedded store with its real tables, and rows that tests write by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from collectors.store.client import Store
from collectors.store.migrate import migrate
from tests.conftest import FOREVER
from tests.support.browser import CHROMIUM, chromium, clean_tab

BASE_UNIX_NS = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
NOW_UNIX_NS = BASE_UNIX_NS + 3600 * 1_000_000_000
STAGES = ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver", "unattributed")

WRITTEN = (
    *("requests", "requests_1m", "requests_1h", "requests_1d", "otel_traces", "otel_traces_trace_id_ts"),
    *("otel_metrics_sum", "engine_steps", "otel_metrics_gauge"),
)


class HandStore:
    """A store whose rows a test writes itself; times are ns from ``BASE_UNIX_NS``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.database = store.database
        self._made = 0

    @property
    def raw(self) -> Store:
        return self._store

    def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        return self._store.query(sql, params)

    def empty(self) -> None:
        """Take away all rows; cheap for tables that have none."""
        for table in WRITTEN:
            if self.query(f"SELECT count() AS n FROM {self._store.database}.{table}", {})[0]["n"]:
                self.truncate(table)

    def truncate(self, table: str) -> None:
        self._store.command(f"TRUNCATE TABLE {self._store.database}.{table}")

    def insert(self, table: str, rows: list[dict[str, object]]) -> None:
        body = "\n".join(json.dumps(row) for row in rows).encode()
        self._store._client.raw_insert(
            f"{self._store.database}.{table}", insert_block=body, fmt="JSONEachRow"
        )

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

    def steps(self, *rows: Mapping[str, object]) -> None:
        """Engine steps: ``start`` and ``duration`` in ns, ``prefill`` and ``decode`` requests.

        Other keys are ``instance``, ``engine``, and columns.
        """
        made: list[dict[str, object]] = []
        for given in rows:
            prefill, decode = (int(given.get(name, 0)) for name in ("prefill", "decode"))  # type: ignore[call-overload]
            row: dict[str, object] = {
                "Timestamp": when(int(given["start"])),  # type: ignore[call-overload]
                "ServiceName": "proxy",
                "ServiceInstance": given.get("instance", "a"),
                "Model": "m",
                "Engine": given.get("engine", 0),
                "DurationNs": given["duration"],
                "PrefillRequests": prefill,
                "PrefillTokens": 8 * prefill,
                "DecodeRequests": decode,
                "DecodeTokens": decode,
                "Running": decode,
                "Waiting": 0,
                "KvCacheUsage": 0.5,
            }
            row.update({name: value for name, value in given.items() if not name[0].islower()})
            made.append(row)
        self.insert("engine_steps", made)

    def gauges(self, name: str, values: Mapping[int, float], **more: object) -> None:
        """Points of one gauge by their time in ns; ``more`` are columns."""
        self.insert(
            "otel_metrics_gauge",
            [
                {"MetricName": name, "TimeUnix": when(at), "Value": value, "ServiceName": "gpu", **more}
                for at, value in values.items()
            ],
        )

    def traced(self, n: int, **given: object) -> str:
        """Request ``n`` with its spans; stage names give ``(start, end)`` in ns. Its trace id.

        ``marks`` are events of the decode span, other keys columns of the request.
        """
        trace, root, call = f"{n:032x}", f"{n:016x}", f"c{n:015x}"
        stages = {name: given.pop(name) for name in STAGES if name in given}
        marks: list[tuple[str, int]] = given.pop("marks", [])  # type: ignore[assignment]
        start = min(a for a, _ in stages.values())  # type: ignore[misc]
        end = max(b for _, b in stages.values())  # type: ignore[misc]
        held = {name: b - a for name, (a, b) in stages.items()}  # type: ignore[misc]
        self.requests({"start": start, "TraceId": trace, "SpanId": root, **held,
                       "E2ENs": end - start, **given})  # fmt: skip
        rows: list[dict[str, object]] = [
            {"TraceId": trace, "SpanId": root, "start": start, "duration": end - start},
            {"TraceId": trace, "SpanId": call, "ParentSpanId": root, "start": start,
             "duration": end - start},
        ]  # fmt: skip
        for i, (name, (a, b)) in enumerate(stages.items(), 1):  # type: ignore[misc]
            events = marks if name == "decode" else []
            rows.append({
                "TraceId": trace, "SpanId": f"{i:x}{n:015x}", "ParentSpanId": call,
                "SpanName": name, "SpanAttributes": {"stagelens.stage": name}, "start": a,
                "duration": b - a, "Events.Name": [m for m, _ in events],
                "Events.Timestamp": [when(at) for _, at in events],
                "Events.Attributes": [{} for _ in events],
            })  # fmt: skip
        self.spans(*rows)
        return trace

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a module."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with chromium() as one:
        yield one


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page whose console must stay free of errors."""
    with clean_tab(browser) as one:
        yield one


@pytest.fixture
def store(engine: Store) -> Iterator[HandStore]:
    """Empty tables for one test."""
    made = HandStore(engine)
    yield made
    made.empty()


@pytest.fixture(scope="module")
def module_store(engine: Store, request: pytest.FixtureRequest) -> Iterator[HandStore]:
    """A database for tests of one module that only read what a fixture wrote."""
    name = f"m{abs(hash(request.node.nodeid)):x}"
    engine.command(f"CREATE DATABASE {name}")
    other = Store(engine._client, replace(engine.url, database=name), FOREVER, None)
    migrate(other)
    yield HandStore(other)
    engine.command(f"DROP DATABASE {name}")
