"""Service levels: goodput, what was missed and which stage held it, and losses."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.boards.explorer import TRACE_LINK
from dashboards.grafana.levels import BOXES, BROKEN, GOOD, UNKNOWN, USUAL, stage_of
from dashboards.grafana.losses import increases
from dashboards.grafana.spec import Board, Panel, Row
from dashboards.grafana.sql import STEP, TTFT, exact, ms, requests, select, sketch
from dashboards.grafana.variables import COMMON, LIMIT_BOXES

_SECONDS: Final = "dateDiff('second', $__fromTime, $__toTime)"
_BY_TIME: Final = "GROUP BY time\nORDER BY time"
_WHERE: Final = requests()
_LOSS_SQL: Final = increases("$__fromTime", "$__toTime")


def _stat(title: str, about: str, column: str, unit: str, given: tuple[str, ...] = ()) -> Panel:
    return Panel(title, "stat", about, select([column], _WHERE, given=given), unit, width=6, height=4)


BOARD: Final = Board(
    "stagelens-slo", "Stagelens: service levels",
    "Which requests met the limits given above, and what broke the others. Good: ended ok within "
    "every limit. Failed: an error or a cancel. Unknown: a figure is missing (no stream: no TTFT).",
    (*COMMON, *LIMIT_BOXES),
    (
        Row(
            "Goodput",
            (
                _stat("Good requests per second", "Goodput, by the length of the time range.",
                      f"countIf({GOOD}) / {_SECONDS} AS rate", "reqps"),
                Panel(
                    "Good, missed, failed, unknown", "stat", "Shares of all requests.",
                    select(
                        [f"if(n = 0, NULL, 100 * {one} / n) AS {one}"
                         for one in ("good", "missed", "failed", "unknown")],
                        "FROM (\n"
                        + select(
                            ["count() AS n", f"countIf({GOOD}) AS good", "countIf(Status != 'ok') AS failed",
                             f"countIf({UNKNOWN}) AS unknown", "n - good - failed - unknown AS missed"],
                            _WHERE,
                        )
                        + "\n)",
                    ),
                    "percent", height=4,
                ),
                _stat("TTFT, $percentile", "Beside the limit that was given.",
                      f"{ms('ttft')} AS ttft, {BOXES['ttft']} AS allowed", "ms", (exact("ttft", *TTFT),)),
                Panel(
                    "Good share over time", "timeseries", "Of the requests that began then.",
                    select([STEP, f"100 * countIf({GOOD}) / count() AS good"], f"{_WHERE}\n{_BY_TIME}"),
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
                            f"{BOXES['ttft']} AS allowed"],
                           f"{_WHERE}\n{_BY_TIME}", given=(sketch("ttft", *TTFT),)),
                ),
                Panel(
                    "Good share by model", "table", "Of all of the model's requests.",
                    select(
                        ["Model AS model", "count() AS n", f"100 * countIf({GOOD}) / count() AS good"],
                        f"{_WHERE}\nGROUP BY model\nORDER BY n DESC\nLIMIT 200",
                    ),
                    "short", units={"good": "percent"},
                ),
            ),
        ),
        Row(
            "What was missed",
            (
                Panel(
                    "Misses over time by limit", "timeseries",
                    "A request that broke two limits is in both.",
                    select([STEP, f"arrayJoin({BROKEN}) AS broke", "count() AS n"],
                           f"{_WHERE}\nGROUP BY time, broke\nORDER BY time"),
                    "short", stacked=True,
                ),
                Panel(
                    "Stage that broke it", "table",
                    "The stage that took most above its median among the good requests; for TTFT "
                    "of those before the first token and the rest of the way.",
                    select(
                        ["broke", f"{stage_of('broke')} AS stage", "count() AS n"],
                        f"FROM (\n  SELECT *, arrayJoin({BROKEN}) AS broke\n  {_WHERE}\n)\n"
                        "GROUP BY broke, stage\nORDER BY n DESC, broke, stage",
                        given=(USUAL,),
                    ),
                    "short",
                ),
                Panel(
                    "Slowest that were not good", "table", "A click on a trace id opens the trace.",
                    select(
                        ["Timestamp AS time", "TraceId AS trace", "Model AS model", "Status AS status",
                         f"arrayStringConcat({BROKEN}, ', ') AS broke", "E2ENs / 1e6 AS e2e",
                         "FirstTokenNs / 1e6 AS ttft", "TpotNs / 1e6 AS tpot", "QueueNs / 1e6 AS queue",
                         "PrefillNs / 1e6 AS prefill", "DecodeNs / 1e6 AS decode"],
                        requests(f"notEmpty({BROKEN})") + "\nORDER BY E2ENs DESC, trace\nLIMIT 100",
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
