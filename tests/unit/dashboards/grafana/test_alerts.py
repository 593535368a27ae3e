"""The alert rules' queries, on an hour that holds what should alarm and what should not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.grafana.alerts import FEWEST, Limits, alert_queries, alerting
from tests.unit.dashboards.conftest import BASE_UNIX_NS
from tests.unit.dashboards.grafana.conftest import MINUTE, MS, Grafana

ASKED = alert_queries(Limits())
NOW = f"toDateTime({BASE_UNIX_NS // 1_000_000_000 + 3600})"


def one(model: str, decode_ms: int, **more: object) -> dict[str, object]:
    """A request five minutes before the end of the hour."""
    return {"Model": model, "start": 55 * MINUTE, "decode": decode_ms * MS, "OutputTokens": 1, **more}


@pytest.fixture(scope="module", autouse=True)
def filled(grafana: Grafana) -> Iterator[None]:
    """A slow model, a good one, one with too few requests; a loss in the window and one before."""
    store = grafana.store
    many = range(FEWEST)
    store.requests(
        *(one("slow d'arc", 3000, FirstTokenNs=2000 * MS) for _ in many),
        *(one("good", 900, FirstTokenNs=100 * MS) for _ in many),
        one("good", 900, Status="error"),
        one("good", 900),
        one("good", 90_000, Status="cancelled"),
        one("rare", 90_000, FirstTokenNs=80_000 * MS),
        *(one("old", 1, start=40 * MINUTE, FirstTokenNs=9000 * MS) for _ in many),
    )
    dropped = "stagelens.export.spans.dropped"
    for minute, value in ((40, 5), (49, 9), (59, 12)):
        store.told(dropped, value, minute * MINUTE + MINUTE // 2, reason="queue_full")
    store.told(dropped, 4, 40 * MINUTE, reason="unavailable", instance="quiet")
    store.told(dropped, 4, 58 * MINUTE, reason="unavailable", instance="quiet")
    yield
    store.empty()


def at_the_hours_end(sql: str) -> str:
    return sql.replace("now()", NOW)


def test_ttft(grafana: Grafana) -> None:
    """p95 by model, of the last ten minutes, of models with enough requests."""
    rows = grafana.rows(at_the_hours_end(ASKED["stagelens-ttft-p95"]))
    assert rows == [
        {"model": "good", "ttft_p95_ms": 100.0}, {"model": "slow d'arc", "ttft_p95_ms": 2000.0}
    ]  # fmt: skip


def test_goodput(grafana: Grafana) -> None:
    """Errors, cancels and slow first tokens are not good; where no TTFT is known, none counts."""
    rows = grafana.rows(at_the_hours_end(ASKED["stagelens-goodput"]))
    assert rows == [
        {"model": "good", "good": pytest.approx(100 * FEWEST / (FEWEST + 2))},
        {"model": "slow d'arc", "good": 0.0},
    ]


def test_losses(grafana: Grafana) -> None:
    """Only what grew in the window counts; the sender whose sum stood still lost nothing."""
    rows = grafana.rows(at_the_hours_end(ASKED["stagelens-losses"]))
    assert [(row["reason"], row["lost"]) for row in rows] == [("queue_full", 3.0), ("unavailable", 0.0)]


@pytest.mark.parametrize("uid", ASKED)
def test_each_row_is_one_number_with_labels(grafana: Grafana, uid: str) -> None:
    """Grafana takes a table of texts and exactly one number as one alert a row."""
    kinds = list(grafana.types(ASKED[uid]).values())
    assert sum(kind == "Float64" for kind in kinds) == 1
    assert all(kind in ("Float64", "String", "LowCardinality(String)") for kind in kinds)
    grafana.rows(ASKED[uid])  # and as it is, with the real clock


def test_rules_hold_nothing_that_provisioning_would_replace() -> None:
    """A provisioning file takes ``$name`` for the environment: SQL has none, labels have ``$$``."""
    for rule in alerting(Limits(), "x")["groups"][0]["rules"]:
        assert "$" not in str(rule["data"])
        assert "$" not in rule["annotations"]["summary"].replace("$$", "")
        assert [one["refId"] for one in rule["data"]] == ["A", rule["condition"]]


def test_limits_reach_the_rules() -> None:
    """What the command was told stands in the thresholds and in the goodput's SQL."""
    limits = Limits(ttft_ms=250, tpot_ms=20, e2e_ms=5000, goodput_percent=95)
    ttft, goodput, losses = alerting(limits, "x")["groups"][0]["rules"]
    bounds = [one["data"][1]["model"]["conditions"][0]["evaluator"] for one in (ttft, goodput, losses)]
    assert bounds == [
        {"type": "gt", "params": [250]}, {"type": "lt", "params": [95]}, {"type": "gt", "params": [0]}
    ]  # fmt: skip
    assert "250 * 1e6" in goodput["data"][0]["model"]["rawSql"]
