"""A store with known rows, and a way to ask it as Grafana does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from collectors.store.client import Store
from collectors.store.migrate import migrate
from tests.conftest import FOREVER
from tests.support.grafana import ALL, Range, View
from tests.unit.dashboards.conftest import BASE_UNIX_NS, HandStore

MS = 1_000_000
MINUTE = 60_000 * MS
HOUR = Range(BASE_UNIX_NS // MS, BASE_UNIX_NS // MS + 3_600_000)
"""12:00 to 13:00; the step is a minute."""
UNTOUCHED: dict[str, Any] = {
    "datasource": "stagelens", "model": [ALL], "route": [ALL], "tag": [ALL], "status": [ALL],
    "instance": [ALL], "percentile": "p95", "order": "slowest", "least_e2e": "", "find": "",
    "traceId": "", "ttft_limit": "1000", "tpot_limit": "100", "e2e_limit": "30000",
}  # fmt: skip


@dataclass
class Grafana:
    """Runs queries as the plugin would; unqualified tables are those of the fixture's database."""

    store: HandStore
    client: Any

    def ask(self, sql: str, view: View | None = None, **choices: Any) -> list[dict[str, Any]]:
        return self.rows(self.expanded(sql, view, **choices))

    def expanded(self, sql: str, view: View | None = None, **choices: Any) -> str:
        used = view or View(HOUR)
        return replace(used, choices={**UNTOUCHED, **used.choices, **choices}).expand(sql)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return list(self.client.query(sql).named_results())

    def types(self, sql: str) -> dict[str, str]:
        """Column types of a SELECT, in order."""
        return {str(row["name"]): str(row["type"]) for row in self.rows(f"DESCRIBE TABLE ({sql})")}


@pytest.fixture(scope="module")
def grafana(engine: Store) -> Iterator[Grafana]:
    """A database of its own, which is the default one as long as the module runs."""
    name = "grafana_tests"
    engine.command(f"CREATE DATABASE {name}")
    mine = Store(engine._client, replace(engine.url, database=name), FOREVER, None)
    migrate(mine)
    engine._client.database = name
    yield Grafana(HandStore(mine), engine._client)
    engine._client.database = "default"
    engine.command(f"DROP DATABASE {name}")


def fill(store: HandStore) -> None:
    """Four requests of the hour, two that do not count, and what belongs to them."""
    chat: Mapping[str, object] = {"Model": "llama", "Route": "/v1/chat/completions"}
    store.requests(
        {**chat, "start": 10 * MINUTE, "prompt": 100 * MS, "queue": 400 * MS, "prefill": 500 * MS,
         "decode": 3000 * MS, "FirstTokenNs": 1000 * MS, "TpotNs": 30.0 * MS, "InputTokens": 100,
         "CachedTokens": 50, "OutputTokens": 101, "Tags": {"run": "a"}, "Warm": True,
         "Preemptions": 1, "PreemptedNs": 200 * MS},
        {**chat, "start": 10 * MINUTE + 2000 * MS, "prompt": 100 * MS, "prefill": 300 * MS,
         "decode": 600 * MS, "FirstTokenNs": 400 * MS, "TpotNs": 10.0 * MS, "InputTokens": 300,
         "CachedTokens": 0, "OutputTokens": 61, "InFlight": 3, "Tags": {"run": "b"}},
        {"Model": "phi", "Route": "/v1/completions", "start": 20 * MINUTE, "prompt": 50 * MS,
         "unattributed": 150 * MS, "Status": "error", "ErrorType": "timeout", "HttpStatus": 504,
         "Stream": False},
        {**chat, "start": 30 * MINUTE, "prompt": 100 * MS, "decode": 1900 * MS,
         "FirstTokenNs": 1500 * MS, "Status": "cancelled", "OutputTokens": 5},
        {**chat, "start": -120 * MINUTE, "decode": 99_000 * MS},
        {"start": 15 * MINUTE, "Operation": "", "prompt": 7000 * MS},
    )  # fmt: skip
    store.spans(
        {"TraceId": trace_id(1), "SpanId": "a" * 16, "start": 10 * MINUTE, "duration": 400_000,
         "SpanName": "short", "SpanAttributes": {"gen_ai.request.model": "d'arc"},
         "ResourceAttributes": {"service.name": "proxy"}, "StatusCode": "Error"},
        {"TraceId": trace_id(1), "SpanId": "b" * 16, "ParentSpanId": "a" * 16,
         "start": 10 * MINUTE + 3000 * MS, "duration": 1_500_000, "SpanName": "decode",
         "Events.Timestamp": ["2026-01-01 12:10:03.250000000"], "Events.Name": ["preempted"],
         "Events.Attributes": [{"n": "1"}]},
    )  # fmt: skip
    for second, prefill in ((1, 0), (2, 100)):
        store.insert("engine_steps", [{
            "Timestamp": f"2026-01-01 12:10:0{second}.000000000", "ServiceName": "proxy",
            "ServiceInstance": "a", "Model": "llama", "Engine": 0,
            "DurationNs": 30 * MS if prefill else 10 * MS, "PrefillRequests": 1 if prefill else 0,
            "PrefillTokens": prefill, "DecodeRequests": 2, "DecodeTokens": 2, "Running": 2,
            "Waiting": 1, "KvCacheUsage": 0.5 if prefill else 0.25,
        }])  # fmt: skip
    dropped = "stagelens.export.spans.dropped"
    store.told(dropped, 5, -MINUTE // 2, reason="queue_full")
    store.told(dropped, 7, 10 * MINUTE, reason="queue_full")
    store.told("stagelens.export.steps.dropped", 3, 20 * MINUTE, reason="unavailable",
               instance="b", started=str(19 * MINUTE))  # fmt: skip
    store.insert("otel_metrics_gauge", [
        {"ServiceName": "gpu", "ResourceAttributes": {"host.name": "box"}, "MetricName": name,
         "Attributes": {"hw.id": "GPU-1", "hw.type": "gpu", "gpu": "0", **more},
         "TimeUnix": "2026-01-01 12:10:00.000000000", "Value": value}
        for name, value, more in (
            ("hw.gpu.utilization", 0.75, {}), ("hw.gpu.memory.usage", 8e9, {}), ("hw.power", 300.0, {}),
            ("stagelens.gpu.throttled", 1.0, {"reason": "sw_power_cap"}),
        )
    ])  # fmt: skip


def trace_id(number: int) -> str:
    """The id that ``HandStore`` gives to the ``number``-th request that it wrote."""
    return f"{number:032x}"
