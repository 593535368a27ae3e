"""Overview: how many, how slow, and which stage holds the time."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.losses import increases
from dashboards.grafana.spec import Board, Panel, Row
from dashboards.grafana.sql import (
    CACHED_SHARE,
    LEVEL,
    STEP,
    TPOT,
    TTFT,
    exact,
    ms,
    repeated,
    requests,
    select,
    sketch,
    stage_means,
    text,
)
from dashboards.grafana.variables import COMMON
from dashboards.queries.measures import STAGE_COLUMNS
from tracer import semconv
from tracer.stages import Stage

_SECONDS: Final = "dateDiff('second', $__fromTime, $__toTime)"
_BY_TIME: Final = "GROUP BY time\nORDER BY time"
_SHOWN: Final = ("p50", "p95", "p99")
_HEAT_POINTS: Final = 10_000


def _stat(title: str, about: str, columns: list[str], unit: str, given: tuple[str, ...] = ()) -> Panel:
    return Panel(
        title, "stat", about, select(columns, requests(), given=given), unit, width=3, height=4
    )


def _share(condition: str, name: str) -> str:
    return f"if(count() = 0, NULL, 100 * countIf({condition}) / count()) AS {name}"


_NOW: Final = Row(
    "In the time range",
    (
        _stat("Requests", "Requests that made a model call and began in the time range.",
              ["count() AS requests"], "short"),
        _stat("Requests per second", "The same by the length of the time range.",
              [f"count() / {_SECONDS} AS rate"], "reqps"),
        _stat("Output tokens per second", "Tokens that the engine or the server counted.",
              [f"sum(OutputTokens) / {_SECONDS} AS rate"], "short"),
        _stat("E2E, $percentile", "First byte of the request to the last byte of the answer; exact.",
              [f"{ms('e2e')} AS e2e"], "ms", (exact("e2e", "E2ENs"),)),
        _stat("TTFT, $percentile", "First byte of the request to the first token; streams only.",
              [f"{ms('ttft')} AS ttft"], "ms", (exact("ttft", *TTFT),)),
        _stat("TPOT, $percentile", "Time per output token after the first.",
              [f"{ms('tpot')} AS tpot"], "ms", (exact("tpot", *TPOT),)),
        _stat("Errors and cancels", "Share of the requests.",
              [_share("Status = 'error'", "errors"), _share("Status = 'cancelled'", "cancelled")],
              "percent"),
        Panel(
            "Lost spans", "stat",
            "Spans that senders say they dropped in the time range. No data: no sender told any.",
            "SELECT if(count() = 0, NULL, sum(lost)) AS lost\nFROM "
            + increases("$__fromTime", "$__toTime", metrics=(semconv.METRIC_SPANS_DROPPED,)),
            "short", width=3, height=4,
        ),
    ),
)  # fmt: skip


def _percentiles(title: str, about: str, *what: str) -> Panel:
    columns = [STEP, *(f"{ms('q', level)} AS {level}" for level in _SHOWN)]
    sql = select(columns, f"{requests()}\n{_BY_TIME}", given=(sketch("q", *what),))
    return Panel(title, "timeseries", about, sql, width=8)


_LATENCY: Final = Row(
    "Latency over time",
    (
        _percentiles("E2E over time", "Percentiles of each step of time.", "E2ENs"),
        _percentiles("TTFT over time", "Of streamed requests.", *TTFT),
        _percentiles("TPOT over time", "Of requests with two tokens or more.", *TPOT),
    ),
)
_STAGE_NAMES: Final = ", ".join(f"'{stage}'" for stage in Stage)
_STAGE_TIMES: Final = ", ".join(STAGE_COLUMNS.values())
_SLOW: Final = (
    f"(SELECT quantilesExactInclusive(0.5, 0.9, 0.95, 0.99, 0.999)(E2ENs)[{LEVEL}] {requests()}) AS bound",
)
_WHERE_TIME_GOES: Final = Row(
    "Where the time goes",
    (
        Panel(
            "Stages over time", "timeseries",
            "Mean exclusive time of each stage; the stack is the mean of E2E.",
            select([STEP, *stage_means()], f"{requests()}\n{_BY_TIME}"), stacked=True,
        ),
        Panel(
            "Stages of all and of the slowest", "barchart",
            "Mean time of each stage, in all requests and in those at or above the chosen "
            "percentile of E2E. What grows between the two bars makes the slow ones slow.",
            select(
                ["concat(which, ', n = ', toString(count())) AS requests", *stage_means()],
                "FROM (\n  SELECT *, arrayJoin(if(E2ENs >= bound, "
                f"['all', concat('at or above ', {text('percentile')})], ['all'])) AS which\n  "
                + requests() + "\n)\nGROUP BY which\nORDER BY which",
                given=_SLOW,
            ),
            stacked=True,
        ),
        Panel(
            "Percentiles by stage", "table",
            "Of the requests in which the stage ran; from a t-digest. The share is of all time.",
            select(
                ["stage", "count() AS n", *(f"{ms('q', level)} AS {level}" for level in _SHOWN),
                 "max(ns) / 1e6 AS max", "100 * sum(ns) / sum(sum(ns)) OVER () AS share"],
                f"FROM (\n  SELECT StageCounts, [{_STAGE_NAMES}] AS names, [{_STAGE_TIMES}] AS times\n  "
                + requests()
                + "\n)\nARRAY JOIN names AS stage, times AS ns\n"
                "WHERE StageCounts[stage] > 0 OR ns > 0 OR stage = 'unattributed'\n"
                "GROUP BY stage\nORDER BY sum(ns) DESC",
                given=(sketch("q", "ns"),),
            ),
            width=24, units={"n": "short", "share": "percent"},
        ),
    ),
)  # fmt: skip
_LOAD: Final = Row(
    "Load",
    (
        Panel(
            "Requests per second by status", "timeseries", "When they began.",
            select(
                [STEP, "Status AS status", "count() / $__interval_s AS rate"],
                f"{requests()}\nGROUP BY time, status\nORDER BY time",
            ),
            "reqps", stacked=True,
        ),
        Panel(
            "Output tokens per second over time", "timeseries",
            "Tokens of the requests that began then.",
            select([STEP, "sum(OutputTokens) / $__interval_s AS tokens"],
                   f"{requests()}\n{_BY_TIME}"),
            "short",
        ),
        Panel(
            "E2E heat map", "heatmap",
            f"A sample of about {_HEAT_POINTS:,} requests at most, chosen by their trace id.",
            select(
                ["Timestamp AS time", "E2ENs / 1e6 AS e2e"],
                requests("cityHash64(TraceId) % every = 0") + "\nORDER BY time",
                given=(f"(SELECT intDiv(count(), {_HEAT_POINTS}) + 1 {requests()}) AS every",),
            ),
        ),
        Panel(
            "By load at arrival", "table",
            "Other requests in the proxy when one arrived, in doublings; tokens per second are "
            "what one user sees at the median.",
            select(
                ["if(InFlight = 0, 0, toUInt32(exp2(floor(log2(InFlight))))) AS in_flight",
                 "count() AS n", f"{ms('e2e')} AS e2e", f"{ms('ttft')} AS ttft",
                 "if(tpot_levels[1] > 0, 1e9 / tpot_levels[1], NULL) AS user_tokens_per_s"],
                f"{requests()}\nGROUP BY in_flight\nORDER BY in_flight",
                given=(sketch("e2e", "E2ENs"), sketch("ttft", *TTFT), sketch("tpot", *TPOT)),
            ),
            units={"n": "short", "in_flight": "short", "user_tokens_per_s": "short"},
        ),
    ),
)  # fmt: skip
_SLICES: Final = Row(
    "Slices",
    (
        Panel(
            "By model and route", "table",
            "At the chosen percentile; the cached share is of the prompt tokens of requests that "
            "say how many were cached.",
            select(
                ["Model AS model", "Route AS route", "count() AS n",
                 _share("Status = 'error'", "errors"),
                 f"{ms('e2e')} AS e2e", f"{ms('ttft')} AS ttft", f"{ms('tpot')} AS tpot",
                 "avg(InputTokens) AS input_tokens", "avg(OutputTokens) AS output_tokens",
                 f"100 * {CACHED_SHARE} AS cached"],
                f"{requests()}\nGROUP BY model, route\nORDER BY n DESC\nLIMIT 200",
                given=(sketch("e2e", "E2ENs"), sketch("ttft", *TTFT), sketch("tpot", *TPOT)),
            ),
            width=24,
            units={"n": "short", "errors": "percent", "cached": "percent",
                   "input_tokens": "short", "output_tokens": "short"},
        ),
        Panel(
            "$model", "timeseries", "One panel a model that is chosen.",
            select(
                [STEP, f"{ms('e2e')} AS e2e", f"{ms('ttft')} AS ttft"],
                f"{requests(model=repeated('Model', 'model'))}\n{_BY_TIME}",
                given=(sketch("e2e", "E2ENs"), sketch("ttft", *TTFT)),
            ),
            width=8, repeat="model",
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    "stagelens-overview", "Stagelens: overview",
    "Where did the time go? Percentiles, stages and load of all requests.",
    COMMON,
    (_NOW, _LATENCY, _WHERE_TIME_GOES, _LOAD, _SLICES),
)  # fmt: skip
