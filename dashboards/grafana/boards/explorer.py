"""Requests: a list with a link from each to its trace."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.spec import Board, Panel, Row, Variable
from dashboards.grafana.sql import STEP, chosen, number, requests, select, text
from dashboards.grafana.variables import COMMON, STATUS
from dashboards.queries.measures import STAGE_COLUMNS

TRACE_LINK: Final = "/d/stagelens-trace?var-traceId=${__value.raw}&${__url_time_range}"
"""The trace of a cell, with the time range kept."""

_ORDER: Final = Variable(
    "order", "Order", "Which requests stand first", options=("slowest", "newest"), start="slowest"
)
_LEAST: Final = Variable("least_e2e", "E2E at least (ms)", "Empty: all", start="")
_FIND: Final = Variable("find", "Error or tag contains", "Empty: all", start="")
_COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "preemptions", "in_flight")
_PICKED: Final = (
    chosen("Status", "status"),
    f"E2ENs >= ifNull({number('least_e2e')}, 0) * 1e6",
    (
        f"(empty({text('find')}) OR positionCaseInsensitiveUTF8("
        f"concat(ErrorType, ' ', toJSONString(Tags)), {text('find')}) > 0)"
    ),
)

BOARD: Final = Board(
    "stagelens-requests", "Stagelens: requests",
    "Find requests and go to their traces.",
    (*COMMON[:3], STATUS, _ORDER, _LEAST, _FIND),
    (
        Row(
            "Requests",
            (
                Panel(
                    "Requests that match", "timeseries", "By how they ended.",
                    select(
                        [STEP, "Status AS status", "count() AS n"],
                        requests(*_PICKED) + "\nGROUP BY time, status\nORDER BY time",
                    ),
                    "short", width=24, height=6, stacked=True,
                ),
                Panel(
                    "Slowest or newest requests", "table",
                    "200 at most. A click on a trace id opens the trace.",
                    select(
                        ["Timestamp AS time", "TraceId AS trace", "Model AS model", "Route AS route",
                         "Status AS status", "ErrorType AS error", "E2ENs / 1e6 AS e2e",
                         "FirstTokenNs / 1e6 AS ttft", "TpotNs / 1e6 AS tpot",
                         *(f"{column} / 1e6 AS {stage}" for stage, column in STAGE_COLUMNS.items()),
                         "InputTokens AS input_tokens", "CachedTokens AS cached_tokens",
                         "OutputTokens AS output_tokens", "InFlight AS in_flight",
                         "Preemptions AS preemptions", "ifNull(toString(Warm), '') AS warm",
                         "toJSONString(Tags) AS tags"],
                        requests(*_PICKED)
                        + f"\nORDER BY if({text('order')} = 'newest', "
                        "toUnixTimestamp64Nano(Timestamp), toInt64(E2ENs)) DESC, TraceId\nLIMIT 200",
                    ),
                    width=24, height=14, links={"trace": TRACE_LINK},
                    units=dict.fromkeys(_COUNTS, "short"),
                ),
                Panel(
                    "Errors by kind", "table", "With the latest trace of each.",
                    select(
                        ["ErrorType AS error", "HttpStatus AS http_status", "count() AS n",
                         "max(Timestamp) AS latest", "argMax(TraceId, Timestamp) AS trace"],
                        requests("Status = 'error'", *_PICKED[1:])
                        + "\nGROUP BY error, http_status\nORDER BY n DESC, error LIMIT 100",
                    ),
                    "none", width=24, links={"trace": TRACE_LINK},
                ),
            ),
        ),
    ),
)  # fmt: skip
