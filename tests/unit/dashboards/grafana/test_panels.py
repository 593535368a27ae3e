"""Every query of every dashboard runs, in the form its panel needs, and gives the known value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dashboards.analyses.goodput import goodput
from dashboards.filters import Filters
from dashboards.models.goodput import Limits
from tests.unit.dashboards.conftest import BASE_UNIX_NS
from tests.unit.dashboards.grafana.boards import Shown, documents, panel, panels, variables
from tests.unit.dashboards.grafana.conftest import MS, Grafana, fill, trace_id

Rows = list[dict[str, Any]]
HERE: dict[str, Any] = {"traceId": trace_id(1), "ttft_limit": "900"}
REPEATED = {"model": "llama"}


@pytest.fixture(scope="module", autouse=True)
def filled(grafana: Grafana) -> Iterator[None]:
    fill(grafana.store)
    yield
    grafana.store.empty()


def rows_of(grafana: Grafana, one: Shown) -> Rows:
    return grafana.rows(sql_of(grafana, one))


def sql_of(grafana: Grafana, one: Shown) -> str:
    if one.whole.get("repeat"):
        from tests.support.grafana import View
        from tests.unit.dashboards.grafana.conftest import HOUR, UNTOUCHED

        return View(HOUR, {**UNTOUCHED, **HERE}).expand(one.sql, REPEATED)
    return grafana.expanded(one.sql, **HERE)


def at(minute: int, **texts: str) -> Callable[[Rows], dict[str, Any]]:
    """The row of 12:``minute`` with these texts."""

    def pick(rows: Rows) -> dict[str, Any]:
        (row,) = [
            r for r in rows
            if r["time"].minute == minute and all(r[k] == v for k, v in texts.items())
        ]  # fmt: skip
        return row

    return pick


def like(**texts: object) -> Callable[[Rows], dict[str, Any]]:
    def pick(rows: Rows) -> dict[str, Any]:
        (row,) = [r for r in rows if all(r[k] == v for k, v in texts.items())]
        return row

    return pick


def first(rows: Rows) -> dict[str, Any]:
    return rows[0]


KNOWN: dict[tuple[str, str], tuple[int, Callable[[Rows], dict[str, Any]], dict[str, Any]]] = {
    ("overview", "Requests"): (1, first, {"requests": 4}),
    ("overview", "Requests per second"): (1, first, {"rate": 4 / 3600}),
    ("overview", "Output tokens per second"): (1, first, {"rate": 167 / 3600}),
    # R7 of 200, 1000, 2000, 4000 ms
    ("overview", "E2E, $percentile"): (1, first, {"e2e": 3700.0}),
    ("overview", "TTFT, $percentile"): (1, first, {"ttft": 1450.0}),
    ("overview", "TPOT, $percentile"): (1, first, {"tpot": 29.0}),
    ("overview", "Errors and cancels"): (1, first, {"errors": 25.0, "cancelled": 25.0}),
    ("overview", "Lost spans"): (1, first, {"lost": 2}),
    ("overview", "E2E over time"): (3, at(20), {"p50": 200.0, "p95": 200.0, "p99": 200.0}),
    ("overview", "TTFT over time"): (3, at(30), {"p50": 1500.0, "p99": 1500.0}),
    ("overview", "TPOT over time"): (3, at(20), {"p50": None}),
    ("overview", "Stages over time"): (
        3, at(10), {"prompt": 100.0, "queue": 200.0, "prefill": 400.0, "decode": 1800.0, "tool": 0.0}),
    ("overview", "Stages of all and of the slowest"): (
        2, like(requests="at or above p95, n = 1"), {"decode": 3000.0, "queue": 400.0}),
    ("overview", "Percentiles by stage"): (
        5, like(stage="decode"), {"n": 3, "max": 3000.0, "share": 100 * 5500 / 7200}),
    ("overview", "Requests per second by status"): (3, at(10, status="ok"), {"rate": 2 / 60}),
    ("overview", "Output tokens per second over time"): (3, at(10), {"tokens": 162 / 60}),
    ("overview", "E2E heat map"): (4, first, {"e2e": 4000.0}),
    ("overview", "By load at arrival"): (
        2, like(in_flight=2), {"n": 1, "e2e": 1000.0, "user_tokens_per_s": 100.0}),
    ("overview", "By model and route"): (
        2, like(model="llama"),
        {"n": 3, "errors": 0.0, "cached": 12.5, "input_tokens": 200.0, "output_tokens": 167 / 3}),
    ("overview", "$model"): (2, at(30), {"e2e": 2000.0, "ttft": 1500.0}),
    ("requests", "Requests that match"): (3, at(10, status="ok"), {"n": 2}),
    ("requests", "Slowest or newest requests"): (
        4, first, {"trace": trace_id(1), "e2e": 4000.0, "queue": 400.0, "tpot": 30.0, "warm": "true"}),
    ("requests", "Errors by kind"): (
        1, first, {"error": "timeout", "http_status": 504, "n": 1, "trace": trace_id(3)}),
    ("trace", "Spans"): (2, like(spanID="a" * 16), {"duration": 0.4, "statusCode": 2}),
    ("trace", "Stages"): (4, like(stage="decode"), {"time": 3000.0, "share": 75.0, "times_run": 1}),
    ("trace", "The request"): (1, first, {"e2e": 4000.0, "preempted": 200.0, "tags": '{"run":"a"}'}),
    ("trace", "Engine steps during the request"): (
        2, first, {"prefill_tokens": 0, "decode_tokens": 2, "step_ms": 10.0}),
    ("trace", "Requests at the same time"): (
        1, first, {"trace": trace_id(2), "start": 2000.0, "prefill": 300.0}),
    ("engine", "Step length"): (1, first, {"p99": 30.0}),
    ("engine", "Steps per second by kind"): (2, like(kind="both"), {"rate": 1 / 60}),
    ("engine", "Engine busy"): (1, first, {"busy": 0.04 / 60}),
    ("engine", "Step length by batch"): (
        1, first, {"decoding": 2, "decode_only": 10.0, "with_prefill": 30.0}),
    ("engine", "Requests in the batch"): (1, first, {"prefill": 0.5, "decode": 2.0}),
    ("engine", "Tokens per second"): (1, first, {"prefill": 100 / 60, "decode": 4 / 60}),
    ("engine", "Running and waiting"): (1, first, {"running": 2, "waiting": 1}),
    ("engine", "KV cache in use"): (1, first, {"used": 0.5}),
    ("engine", "Preemptions"): (3, at(10), {"preemptions": 1, "lost_ms": 200.0}),
    ("engine", "Prefix cache hits"): (3, at(10), {"hit": 0.125}),
    ("engine", "GPU use"): (1, first, {"gpu": "box 0", "value": 0.75}),
    ("engine", "GPU memory"): (1, first, {"value": 8e9}),
    ("engine", "GPU power"): (1, first, {"value": 300.0}),
    ("engine", "GPU held back"): (1, first, {"gpu": "box 0 sw_power_cap", "value": 1.0}),
    ("slo", "Good requests per second"): (1, first, {"rate": 1 / 3600}),
    ("slo", "Good, missed, failed, unknown"): (
        1, first, {"good": 25.0, "missed": 25.0, "failed": 50.0, "unknown": 0.0}),
    ("slo", "TTFT, $percentile"): (1, first, {"ttft": 1450.0, "allowed": 900.0}),
    ("slo", "Good share over time"): (3, at(10), {"good": 50.0}),
    ("slo", "Good and all requests per second"): (3, at(10), {"good": 1 / 60, "total": 2 / 60}),
    ("slo", "TTFT against its limit"): (3, at(30), {"ttft": 1500.0, "allowed": 900.0}),
    ("slo", "Good share by model"): (2, like(model="llama"), {"n": 3, "good": 100 / 3}),
    ("slo", "Misses over time by limit"): (3, at(10, broke="ttft"), {"n": 1}),
    # its queue is 400 ms above the good one's, its prefill 200 ms
    ("slo", "Stage that broke it"): (3, like(broke="ttft"), {"stage": "queue", "n": 1}),
    ("slo", "Slowest that were not good"): (
        3, first, {"trace": trace_id(1), "broke": "ttft", "e2e": 4000.0, "queue": 400.0}),
    ("slo", "Lost by reason"): (2, like(reason="queue_full"), {"lost": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("shown", panels(), ids=lambda one: f"{one.board}: {one.title}")
def test_each_panel_shows_the_known_value(grafana: Grafana, shown: Shown) -> None:
    """A panel's query gives as many rows as the data has, and the figure worked out by hand."""
    count, pick, expected = KNOWN[shown.board, shown.title]
    rows = rows_of(grafana, shown)
    assert len(rows) == count, rows
    row = pick(rows)
    for column, value in expected.items():
        wanted = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        assert row[column] == wanted, (column, row)


def test_every_panel_has_a_known_value() -> None:
    """No panel is left out of the list above, and the list names none that is gone."""
    assert {(one.board, one.title) for one in panels()} == set(KNOWN)


NUMBER = ("UInt", "Int", "Float", "Nullable(UInt", "Nullable(Int", "Nullable(Float")
TEXT = ("String", "LowCardinality(String)")


@pytest.mark.parametrize(
    "shown",
    [one for one in panels() if one.kind != "traces"],  # which have a test of their own
    ids=lambda one: f"{one.board}: {one.title}",
)
def test_columns_have_the_types_that_the_panel_needs(grafana: Grafana, shown: Shown) -> None:
    """A time series begins with its time; numbers are finite; nothing is an array or a map."""
    sql = sql_of(grafana, shown)
    types = grafana.types(sql)
    if shown.form == 0:
        assert next(iter(types)) == "time"
        assert types["time"].startswith("DateTime")
        series = [name for name, kind in types.items() if kind in TEXT]
        assert len(series) <= 1, "more than one text column would name the series"
    assert any(kind.startswith(NUMBER) for kind in types.values())
    for name, kind in types.items():
        assert kind.startswith((*NUMBER, "DateTime")) or kind in TEXT, (name, kind)
    for row in grafana.rows(sql):
        bad = [k for k, v in row.items() if isinstance(v, float) and not math.isfinite(v)]
        assert not bad, row


def test_a_trace_has_the_columns_that_the_trace_panel_reads(grafana: Grafana) -> None:
    """Aliases are spelt as the plugin does, and a span of 400 µs lasts 0.4 ms, not 0."""
    shown = panel("trace", "Spans")
    assert shown.form == 3
    types = grafana.types(sql_of(grafana, shown))
    assert {name: types[name] for name in ("traceID", "spanID", "parentSpanID", "duration")} == {
        "traceID": "String", "spanID": "String", "parentSpanID": "String", "duration": "Float64"
    }  # fmt: skip
    assert types["startTime"] == "DateTime64(9, 'UTC')"
    assert types["tags"] == types["serviceTags"] == "Array(Map(String, String))"
    assert " ".join(types["logs"].split()) == (
        "Array(Tuple( name String, timestamp String, fields Array(Map(String, String))))"
    )
    rows = rows_of(grafana, shown)
    assert [row["duration"] for row in rows] == [0.4, 1.5]
    assert rows[0]["tags"] == [{"key": "gen_ai.request.model", "value": "d'arc"}]
    (event,) = rows[1]["logs"]
    assert event["name"] == "preempted"
    assert event["timestamp"] == "1767269403250"


@pytest.mark.parametrize("shown", panels(), ids=lambda one: f"{one.board}: {one.title}")
def test_no_data_is_no_error(grafana: Grafana, shown: Shown) -> None:
    """In an hour without any rows each query still runs, and no figure is NaN or made up."""
    from tests.support.grafana import Range, View
    from tests.unit.dashboards.grafana.conftest import UNTOUCHED

    empty = View(Range(1_000_000_000_000, 1_000_003_600_000), {**UNTOUCHED, "traceId": "f" * 32})
    for row in grafana.rows(empty.expand(shown.sql, REPEATED if shown.whole.get("repeat") else {})):
        figures = [v for k, v in row.items() if isinstance(v, float) and k != "allowed"]
        assert all(value == 0 for value in figures), row


@pytest.mark.parametrize(("board", "name"), [(b, v) for b, d in documents().items() for v in variables(d)])
def test_variables_offer_what_the_time_range_has(grafana: Grafana, board: str, name: str) -> None:
    """Each variable's query gives its values of the hour, the commonest first."""
    rows = grafana.ask(variables(documents()[board])[name])
    assert [row["value"] for row in rows] == {
        "model": ["llama", "phi"], "route": ["/v1/chat/completions", "/v1/completions"],
        "tag": ["run=a", "run=b"], "instance": ["a"],
    }[name]  # fmt: skip


def test_the_order_and_the_boxes_of_the_explorer(grafana: Grafana) -> None:
    """Newest first, at least so slow, and by a word of the error or of a tag."""
    sql = panel("requests", "Slowest or newest requests").sql
    assert grafana.ask(sql, order="newest")[0]["trace"] == trace_id(4)
    assert [r["e2e"] for r in grafana.ask(sql, least_e2e="1500")] == [4000.0, 2000.0]
    assert [r["error"] for r in grafana.ask(sql, find="TIME")] == ["timeout"]
    assert [r["tags"] for r in grafana.ask(sql, find='"run":"b"')] == ['{"run":"b"}']
    assert [r["status"] for r in grafana.ask(sql, status=["error", "cancelled"])] == ["cancelled", "error"]
    assert len(grafana.ask(sql, least_e2e="no number")) == 4


@pytest.mark.parametrize(("percentile", "ms"), [("p50", 1500.0), ("p90", 3400.0), ("p99", 3940.0)])
def test_the_percentile_is_chosen_by_its_name(grafana: Grafana, percentile: str, ms: float) -> None:
    """Numbers are numpy's linear ones; anything that is no percentile is refused."""
    sql = panel("overview", "E2E, $percentile").sql
    assert grafana.ask(sql, percentile=percentile)[0]["e2e"] == pytest.approx(ms)
    with pytest.raises(Exception, match="135"):  # an index out of bounds
        grafana.ask(sql, percentile="p50') OR 1")


def test_service_levels_are_those_of_the_analysis(grafana: Grafana) -> None:
    """Good, missed, failed, unknown, and the stages that broke limits, as `stagelens goodput` has them."""
    hour = Filters(since_unix_ns=BASE_UNIX_NS, until_unix_ns=BASE_UNIX_NS + 3600 * 10**9)
    shares = panel("slo", "Good, missed, failed, unknown").sql
    stages = panel("slo", "Stage that broke it").sql
    for ttft, tpot, e2e in ((900, 100, 30_000), (300, 20, 500), (None, 9, 3000), (2000, None, None)):
        given = (("ttft_ns", ttft), ("tpot_ns", tpot), ("e2e_ns", e2e))
        limits = Limits(**{name: None if ms is None else ms * MS for name, ms in given})
        told = goodput(grafana.store, hour, limits).overall
        boxes = {
            f"{name}_limit": "" if ms is None else str(ms)
            for name, ms in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e))
        }
        (row,) = grafana.ask(shares, **boxes)
        counts = {n: getattr(told, n) for n in ("good", "missed", "failed", "unknown")}
        assert row == {name: pytest.approx(100 * n / told.requests) for name, n in counts.items()}
        rows = [r for r in grafana.ask(stages, **boxes) if r["broke"] != "failed"]
        found = {(r["broke"], r["stage"]): r["n"] for r in rows}
        assert found == {(b.limit, stage): n for b in told.broken for stage, n in b.stages.items()}
