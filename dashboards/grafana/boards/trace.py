"""One trace: its spans, its stages, and who shared the engine with it."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.boards.explorer import TRACE_LINK
from dashboards.grafana.spec import Board, Panel, Row
from dashboards.grafana.sql import select, text
from dashboards.grafana.variables import TRACE
from dashboards.queries.measures import STAGE_COLUMNS
from tracer.stages import Stage

_WANTED: Final = f"lower(trimBoth({text('traceId')})) AS wanted"
_SPAN_TIMES: Final = (
    _WANTED,
    "(SELECT min(Start) FROM otel_traces_trace_id_ts WHERE TraceId = wanted) AS trace_begin",
    "(SELECT max(End) + 1 FROM otel_traces_trace_id_ts WHERE TraceId = wanted) AS trace_end",
)
"""The lookup table keeps whole seconds, so one is added to the end."""
_WITHIN: Final = "Timestamp >= trace_begin AND Timestamp <= trace_end"
_ROOT: Final = f"FROM requests\nWHERE TraceId = wanted AND {_WITHIN}\nORDER BY Timestamp, SpanId"
_COUNTS: Final = ("input_tokens", "cached_tokens", "output_tokens", "preemptions", "in_flight")
_TAGS: Final = "arrayMap(key -> map('key', key, 'value', {0}[key]), mapKeys({0}))"
_SPANS: Final = select(
    [
        "TraceId AS traceID", "SpanId AS spanID", "ParentSpanId AS parentSpanID",
        "SpanName AS operationName", "ServiceName AS serviceName", "Timestamp AS startTime",
        "Duration / 1000000 AS duration",
        f"{_TAGS.format('SpanAttributes')} AS tags",
        f"{_TAGS.format('ResourceAttributes')} AS serviceTags",
        "if(StatusCode IN ('Error', 'STATUS_CODE_ERROR'), 2, 0) AS statusCode",
        "StatusMessage AS statusMessage", "SpanKind AS kind", "TraceState AS traceState",
        "ScopeName AS instrumentationLibraryName", "ScopeVersion AS instrumentationLibraryVersion",
        ("arrayMap((name, at, attributes) -> tuple(name, toString(toUnixTimestamp64Milli(at)), "
        "arrayMap(key -> map('key', key, 'value', attributes[key]), mapKeys(attributes)))"
        "::Tuple(name String, timestamp String, fields Array(Map(String, String))), "
        "Events.Name, Events.Timestamp, Events.Attributes) AS logs"),
    ],
    f"FROM otel_traces\nWHERE TraceId = wanted AND {_WITHIN}\nORDER BY startTime",
    given=_SPAN_TIMES,
)  # fmt: skip
_STAGE_NAMES: Final = ", ".join(f"'{stage}'" for stage in Stage)
_STAGE_TIMES: Final = ", ".join(STAGE_COLUMNS.values())
_ITS_SPAN: Final = (
    *_SPAN_TIMES,
    (
        "(SELECT (argMin(ServiceInstance, Timestamp), min(Timestamp), "
        "max(Timestamp + toIntervalNanosecond(E2ENs))) "
        f"FROM requests WHERE TraceId = wanted AND {_WITHIN}) AS its"
    ),
)
_OVERLAPS: Final = (
    "ServiceInstance = its.1 AND Timestamp < its.3 "
    "AND Timestamp + toIntervalNanosecond({length}) > its.2 "
    "AND Timestamp >= its.2 - INTERVAL 1 HOUR"
)

BOARD: Final = Board(
    "stagelens-trace", "Stagelens: trace",
    "One request: its spans, its stages and its neighbours in the engine.",
    (TRACE,),
    (
        Row(
            "Trace $traceId",
            (
                Panel("Spans", "traces", "All spans of the trace, whoever sent them.", _SPANS,
                      width=24, height=16),
                Panel(
                    "Stages", "table",
                    "Exclusive times of each request in the trace; they add up to its E2E.",
                    select(
                        ["SpanId AS span", "stage", "ns / 1e6 AS time", "100 * ns / E2ENs AS share",
                         "StageCounts[stage] AS times_run"],
                        f"FROM (\n  SELECT *, [{_STAGE_NAMES}] AS names, [{_STAGE_TIMES}] AS times\n  "
                        f"FROM requests\n  WHERE TraceId = wanted AND {_WITHIN}\n)\n"
                        "ARRAY JOIN names AS stage, times AS ns\nWHERE ns > 0 OR StageCounts[stage] > 0\n"
                        "ORDER BY Timestamp, span, indexOf(names, stage)",
                        given=_SPAN_TIMES,
                    ),
                    units={"share": "percent", "times_run": "short"},
                ),
                Panel(
                    "The request", "table", "What its record says.",
                    select(
                        ["Timestamp AS time", "Model AS model", "Route AS route", "Status AS status",
                         "ErrorType AS error", "E2ENs / 1e6 AS e2e", "FirstChunkNs / 1e6 AS first_chunk",
                         "FirstTokenNs / 1e6 AS ttft", "FirstAnswerNs / 1e6 AS first_answer",
                         "TpotNs / 1e6 AS tpot", "InputTokens AS input_tokens",
                         "CachedTokens AS cached_tokens", "OutputTokens AS output_tokens",
                         "PreemptedNs / 1e6 AS preempted", "Preemptions AS preemptions",
                         "InFlight AS in_flight", "ifNull(toString(Warm), '') AS warm", "Source AS source",
                         "toJSONString(Repairs) AS repairs", "toJSONString(Tags) AS tags"],
                        _ROOT, given=_SPAN_TIMES,
                    ),
                    units=dict.fromkeys(_COUNTS, "short"),
                ),
            ),
        ),
        Row(
            "Beside it in the engine",
            (
                Panel(
                    "Engine steps during the request", "timeseries",
                    "Prefill and decode tokens of each step of its engine process.",
                    select(
                        ["Timestamp AS time", "PrefillTokens AS prefill_tokens",
                         "DecodeTokens AS decode_tokens", "DurationNs / 1e6 AS step_ms"],
                        f"FROM engine_steps\nWHERE {_OVERLAPS.format(length='DurationNs')}\n"
                        "ORDER BY time LIMIT 5000",
                        given=_ITS_SPAN,
                    ),
                    "short", points=True, units={"step_ms": "ms"},
                ),
                Panel(
                    "Requests at the same time", "table",
                    "Of the same proxy; the start is from this request's own, those that began "
                    "more than an hour before it are left out.",
                    select(
                        ["TraceId AS trace", "Model AS model", "Status AS status",
                         "(toUnixTimestamp64Nano(Timestamp) - toUnixTimestamp64Nano(its.2)) / 1e6 AS start",
                         "E2ENs / 1e6 AS e2e", "PrefillNs / 1e6 AS prefill", "DecodeNs / 1e6 AS decode",
                         "InputTokens AS input_tokens", "OutputTokens AS output_tokens"],
                        f"FROM requests\nWHERE {_OVERLAPS.format(length='E2ENs')} AND TraceId != wanted\n"
                        "ORDER BY PrefillNs DESC, trace LIMIT 200",
                        given=_ITS_SPAN,
                    ),
                    links={"trace": TRACE_LINK},
                    units={"input_tokens": "short", "output_tokens": "short"},
                ),
            ),
        ),
    ),
)  # fmt: skip
