"""Alert rules in the form of Grafana's provisioning files.

Grafana evaluates them without a dashboard, so their SQL holds no variables. It holds no
macros either: provisioning files take ``$NAME`` for the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboards.grafana.levels import good, unknown
from dashboards.grafana.losses import increases
from dashboards.grafana.sql import MODEL_CALLS

PLUGIN: Final = "grafana-clickhouse-datasource"
FOLDER: Final = "Stagelens"
WINDOW_MINUTES: Final = 10
FEWEST: Final = 20
"""With fewer requests in the window a model gives no alarm: one slow one would be its p95."""
_BEGIN: Final = f"now() - INTERVAL {WINDOW_MINUTES} MINUTE"
_RECENT: Final = f"FROM requests\nWHERE Timestamp >= {_BEGIN} AND Timestamp <= now()\n  AND {MODEL_CALLS}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is promised: milliseconds, and the percentage of requests that must be good."""

    ttft_ms: float = 1000.0
    tpot_ms: float = 100.0
    e2e_ms: float = 30_000.0
    goodput_percent: float = 99.0


def alert_queries(limits: Limits) -> dict[str, str]:
    """The SQL of each rule by its id: one number a row, and texts that become labels."""
    given = {"ttft": f"{limits.ttft_ms}", "tpot": f"{limits.tpot_ms}", "e2e": f"{limits.e2e_ms}"}
    known = f"countIf(NOT ({unknown(given)}))"
    return {
        "stagelens-ttft-p95": (
            "SELECT\n  toString(Model) AS model,\n"
            "  quantileExactInclusive(0.95)(assumeNotNull(FirstTokenNs)) / 1e6 AS ttft_p95_ms\n"
            f"{_RECENT}\n  AND FirstTokenNs IS NOT NULL\n"
            f"GROUP BY model\nHAVING count() >= {FEWEST}\nORDER BY model"
        ),
        "stagelens-goodput": (
            f"SELECT\n  toString(Model) AS model,\n  100 * countIf({good(given)}) / {known} AS good\n"
            f"{_RECENT}\nGROUP BY model\nHAVING {known} >= {FEWEST}\nORDER BY model"
        ),
        "stagelens-losses": (
            "SELECT metric, service, reason, sum(lost) AS lost\nFROM "
            f"{increases(f'({_BEGIN})', 'now()')}\nGROUP BY metric, service, reason\nORDER BY lost DESC"
        ),
    }


def alerting(limits: Limits, source_uid: str) -> dict[str, Any]:
    """The whole file's content."""
    asked = alert_queries(limits)
    of_model = '{{ index $labels "model" }}'
    told = (
        ("stagelens-ttft-p95", "TTFT p95 is over its limit", "gt", limits.ttft_ms, "5m",
         (f"p95 of the time to first token of {of_model}, last {WINDOW_MINUTES} minutes, is over "
          f"{limits.ttft_ms:g} ms")),
        ("stagelens-goodput", "Goodput is below its limit", "lt", limits.goodput_percent, "5m",
         f"fewer than {limits.goodput_percent:g} % of the requests of {of_model} met their limits"),
        ("stagelens-losses", "Telemetry was lost", "gt", 0, "0s",
         '{{ index $labels "service" }} dropped telemetry: {{ index $labels "reason" }}'),
    )  # fmt: skip
    rules = [
        _rule(uid, title, asked[uid], source_uid, (kind, limit), wait, text)
        for uid, title, kind, limit, wait, text in told
    ]
    group = {"orgId": 1, "name": "stagelens", "folder": FOLDER, "interval": "1m", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def _rule(
    uid: str, title: str, sql: str, source: str, bound: tuple[str, float], wait: str, text: str
) -> dict[str, Any]:
    span = {"from": WINDOW_MINUTES * 60, "to": 0}
    query = {
        "refId": "A", "editorType": "sql", "format": 1, "queryType": "table", "rawSql": sql,
        "datasource": {"type": PLUGIN, "uid": source},
    }  # fmt: skip
    kind, limit = bound
    over: Mapping[str, Any] = {
        "refId": "B", "type": "threshold", "expression": "A",
        "datasource": {"type": "__expr__", "uid": "__expr__"},
        "conditions": [{"evaluator": {"type": kind, "params": [limit]}}],
    }  # fmt: skip
    return {
        "uid": uid, "title": title, "condition": "B", "for": wait,
        "noDataState": "OK", "execErrState": "Error",
        # a provisioning file takes $name for the environment; $$ stands for $
        "annotations": {"summary": text.replace("$", "$$")},
        "labels": {"source": "stagelens"},
        "data": [
            {"refId": "A", "datasourceUid": source, "relativeTimeRange": span, "model": query},
            {"refId": "B", "datasourceUid": "__expr__", "relativeTimeRange": span, "model": over},
        ],
    }  # fmt: skip
