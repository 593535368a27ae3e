"""Service levels: goodput, what was missed and which stage held it, and losses."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.boards.explorer import TRACE_LINK
from dashboards.grafana.losses import increases
from dashboards.grafana.spec import Board, Panel, Row
from dashboards.grafana.sql import (
    GOOD,
    JUDGED,
    LIMITS,
    MISSES,
    STEP,
    TTFT,
    exact,
    largest_stage,
    ms,
    number,
    requests,
    select,
    sketch,
)
from dashboards.grafana.variables import COMMON, LIMIT_BOXES

_SECONDS: Final = "dateDiff('second', $__fromTime, $__toTime)"
_BY_TIME: Final = "GROUP BY time\nORDER BY time"
_WHERE: Final = requests(JUDGED)
_BROKEN: Final = (
    "arrayFilter((name, missed) -> missed, ["
    + ", ".join(f"'{name}'" for name in MISSES)
    + "], ["
    + ", ".join(f"ifNull({term}, false)" for term in MISSES.values())
    + "])"
)
"""The names of the limits that a request broke."""
_LOSS_SQL: Final = increases("$__fromTime", "$__toTime")


def _stat(title: str, about: str, column: str, unit: str, given: tuple[str, ...] = ()) -> Panel:
    return Panel(title, "stat", about, select([column], _WHERE, given=given), unit, width=6, height=4)


BOARD: Final = Board(
    "stagelens-slo", "Stagelens: service levels",
    "Which requests met the limits given above, and what broke the others. A clock that a request "
    "does not have cannot miss; cancelled requests are not judged.",
    (*COMMON, *LIMIT_BOXES),
    (
        Row(
            "Goodput",
            (
                _stat("Goodput", "Share of the judged requests that met every limit.",
                      f"if(count() = 0, NULL, 100 * countIf({GOOD}) / count()) AS goodput", "percent"),
                _stat("Good requests per second", "By the length of the time range.",
                      f"countIf({GOOD}) / {_SECONDS} AS rate", "reqps"),
                _stat("Missed", "Requests that broke a limit or failed.",
                      f"countIf(NOT {GOOD}) AS missed", "short"),
                _stat("TTFT, $percentile", "Beside the limit that was given.",
                      f"{ms('ttft')} AS ttft, {number('ttft_limit', LIMITS['ttft_limit'])} AS allowed",
                      "ms", (exact("ttft", *TTFT),)),
                Panel(
                    "Goodput over time", "timeseries", "Of the requests that began then.",
                    select([STEP, f"100 * countIf({GOOD}) / count() AS goodput"], f"{_WHERE}\n{_BY_TIME}"),
                    "percent",
                ),
                Panel(
                    "Good and all requests per second", "timeseries", "The gap is what was missed.",
                    select([STEP, f"countIf({GOOD}) / $__interval_s AS good",
                            "count() / $__interval_s AS total"], f"{_WHERE}\n{_BY_TIME}"),
                    "reqps",
                ),
                Panel(
                    "TTFT against its limit", "timeseries", "At the chosen percentile.",
                    select([STEP, f"{ms('ttft')} AS ttft",
                            f"{number('ttft_limit', LIMITS['ttft_limit'])} AS allowed"],
                           f"{_WHERE}\n{_BY_TIME}", given=(sketch("ttft", *TTFT),)),
                ),
                Panel(
                    "Goodput by model", "table", "",
                    select(
                        ["Model AS model", "count() AS n", f"100 * countIf({GOOD}) / count() AS goodput"],
                        f"{_WHERE}\nGROUP BY model\nORDER BY n DESC\nLIMIT 200",
                    ),
                    "short", units={"goodput": "percent"},
                ),
            ),
        ),
        Row(
            "What was missed",
            (
                Panel(
                    "Misses over time by limit", "timeseries",
                    "A request that broke two limits is in both.",
                    select([STEP, f"arrayJoin({_BROKEN}) AS broke", "count() AS missed"],
                           f"{_WHERE}\nGROUP BY time, broke\nORDER BY time"),
                    "short", stacked=True,
                ),
                Panel(
                    "Stage that held the missed ones longest", "table",
                    "By limit: the stage with the most time in each request that broke it.",
                    select(
                        [f"arrayJoin({_BROKEN}) AS broke", f"{largest_stage()} AS stage",
                         "count() AS missed"],
                        f"{_WHERE}\nGROUP BY broke, stage\nORDER BY missed DESC, broke, stage",
                    ),
                    "short",
                ),
                Panel(
                    "Slowest of the missed", "table", "A click on a trace id opens the trace.",
                    select(
                        ["Timestamp AS time", "TraceId AS trace", "Model AS model", "Status AS status",
                         f"arrayStringConcat({_BROKEN}, ', ') AS broke", f"{largest_stage()} AS stage",
                         "E2ENs / 1e6 AS e2e", "FirstTokenNs / 1e6 AS ttft", "TpotNs / 1e6 AS tpot"],
                        requests(JUDGED, f"NOT {GOOD}") + "\nORDER BY E2ENs DESC, trace\nLIMIT 100",
                    ),
                    width=24, links={"trace": TRACE_LINK},
                ),
            ),
        ),
        Row(
            "Losses",
            (
                Panel(
                    "Lost by reason", "table",
                    "What senders say they dropped in the time range: spans are missing from all "
                    "figures above, steps from the engine's.",
                    "SELECT metric, service, reason, sum(lost) AS lost\nFROM " + _LOSS_SQL
                    + "\nGROUP BY metric, service, reason\nHAVING lost > 0\n"
                    "ORDER BY lost DESC, metric, reason",
                    "short", width=24,
                ),
            ),
        ),
    ),
)  # fmt: skip
