"""The engine's steps and the GPU's gauges below one trace, and who shared its batches.

A span of stage queue, prefill or decode says when a request was in the engine, and the
instance that sent it says in which one. A request is in a step when it was in prefill or
decode at the middle of the step: the stamps of spans and steps come from different places
of the engine, so that their edges need not agree to the microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.errors import NotStoredError
from dashboards.models.engine import Engine, EngineStep, Gauge, Phase, Point, Sharer
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.queries.trace import MOST_SPANS, find_trace, none_stored, parse_trace_id
from dashboards.queries.tree import order_tree
from dashboards.times import NS_PER_S
from tracer import semconv
from tracer.stages import Stage

MOST_STEPS: Final = 2000
MOST_SHARERS: Final = 500
MOST_GAUGES: Final = 64
LONGEST_STEP_NS: Final = 60 * NS_PER_S
LONGEST_SHARER_NS: Final = 3600 * NS_PER_S
"""Steps and spans that began earlier than this before the trace are not looked for."""
GAUGE_MARGIN_NS: Final = 15 * NS_PER_S
"""Gauges are read about this often; a short trace would lie between two of them."""
COMPUTED: Final = (str(Stage.PREFILL), str(Stage.DECODE))

_SPANS_SQL: Final = """\
SELECT SpanId, ParentSpanId, toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration,
  toString(SpanAttributes[{stage:String}]) AS Stage, ServiceName AS Service,
  toString(ResourceAttributes[{instance:String}]) AS Instance
FROM {database:Identifier}.otel_traces
WHERE TraceId = {id:String}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
ORDER BY StartNs, Duration DESC, SpanId LIMIT {most:UInt32}"""
_STEPS_SQL: Final = """\
SELECT toUnixTimestamp64Nano(Timestamp) AS StartNs, *, count() OVER () AS Total
FROM {database:Identifier}.engine_steps
WHERE ServiceInstance IN {instances:Array(String)}
  AND Timestamp >= fromUnixTimestamp64Nano({reach:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
  AND toUnixTimestamp64Nano(Timestamp) + toInt64(DurationNs) > {begin:Int64}
ORDER BY StartNs, Engine LIMIT {most:UInt32}"""
_SHARERS_SQL: Final = """\
SELECT TraceId, SpanId, toString(SpanName) AS Stage, toUnixTimestamp64Nano(Timestamp) AS StartNs,
  Duration, least(StartNs + toInt64(Duration), {end:Int64}) - greatest(StartNs, {begin:Int64})
  AS Overlap, count() OVER () AS Total
FROM {database:Identifier}.otel_traces
WHERE ServiceName IN {services:Array(String)} AND SpanName IN {names:Array(String)}
  AND Timestamp >= fromUnixTimestamp64Nano({reach:Int64}, 'UTC')
  AND Timestamp < fromUnixTimestamp64Nano({end:Int64}, 'UTC')
  AND toUnixTimestamp64Nano(Timestamp) + toInt64(Duration) > {begin:Int64}
  AND TraceId != {id:String}
  AND ResourceAttributes[{instance:String}] IN {instances:Array(String)}
ORDER BY Overlap DESC, StartNs, SpanId LIMIT {most:UInt32}"""
_GAUGES_SQL: Final = """\
SELECT MetricName AS Name, any(MetricUnit) AS Unit, ServiceName AS Service,
  CAST(Attributes, 'Map(String, String)') AS Attrs,
  arraySort(groupArray(1000)((toUnixTimestamp64Nano(TimeUnix), Value))) AS Points,
  count() OVER () AS Total
FROM {database:Identifier}.otel_metrics_gauge
WHERE TimeUnix >= fromUnixTimestamp64Nano({begin:Int64}, 'UTC')
  AND TimeUnix <= fromUnixTimestamp64Nano({end:Int64}, 'UTC') AND isFinite(Value)
  AND (match(MetricName, '(?i)(gpu|dcgm|nvml)') OR Attributes['hw.type'] = 'gpu')
GROUP BY Name, Service, Attrs ORDER BY Name, Service, toString(Attrs) LIMIT {most:UInt32}"""


@dataclass(frozen=True, slots=True)
class _Trace:
    """Where the trace lies, and its spans in the engine."""

    trace_id: str
    origin_ns: int
    begin_ns: int
    end_ns: int
    rows: tuple[Row, ...]

    @property
    def engine(self) -> list[Row]:
        return [row for row in self.rows if row["Stage"] in {str(Stage.QUEUE), *COMPUTED}]

    def stages_at(self, at_ns: int) -> tuple[str, ...]:
        inside = {row["Stage"] for row in self.engine if _holds(row, at_ns)}
        return tuple(sorted(inside))


def engine(store: QueryStore, trace_id: str, limits: QueryLimits | None = None) -> Engine:
    """The steps during the trace's time in the engine, its batches' other requests, GPU gauges.

    At most ``MOST_STEPS`` steps, the earliest; what is left out is counted. Where the
    trace has no span in an engine, steps and sharers are empty.

    Raises:
        BadValueError, NotStoredError, AmbiguousError: as for :func:`dashboards.queries.trace.trace`.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    found = _read(store, trace_id, bound)
    steps = _steps(store, found, bound)
    sharers = _sharers(store, found, bound)
    gauges = _gauges(store, found, bound)
    made = tuple(_step(row, found) for row in steps)
    shared = [
        row["StartNs"] + row["DurationNs"] // 2
        for row, step in zip(steps, made, strict=True)
        if set(step.stages) & set(COMPUTED)
    ]
    return Engine(
        trace_id=found.trace_id,
        phases=tuple(_phase(row, found) for row in found.engine),
        steps=made,
        steps_left_out=_left(steps),
        sharers=tuple(_sharer(row, found, shared) for row in sharers),
        sharers_left_out=_left(sharers),
        gauges=tuple(_gauge(row, found) for row in gauges),
        gauges_left_out=_left(gauges),
    )


def _read(store: QueryStore, trace_id: str, limits: QueryLimits) -> _Trace:
    place = find_trace(store, parse_trace_id(trace_id), limits)
    params = {
        **place.params, "most": MOST_SPANS,
        "stage": semconv.STAGE, "instance": semconv.SERVICE_INSTANCE_ID,
    }  # fmt: skip
    rows = run(store, _SPANS_SQL, params, limits)
    if not rows:  # the look-up table remembers a trace whose spans are gone
        raise NotStoredError(none_stored(place.trace_id))
    root = order_tree([(r["SpanId"], r["ParentSpanId"], r["StartNs"]) for r in rows])[0].index
    return _Trace(
        trace_id=place.trace_id,
        origin_ns=rows[root]["StartNs"],
        begin_ns=min(row["StartNs"] for row in rows),
        end_ns=max(_end(row) for row in rows),
        rows=tuple(rows),
    )


def _window(found: _Trace) -> dict[str, object]:
    rows = found.engine
    return {
        "begin": min(row["StartNs"] for row in rows),
        "end": max(_end(row) for row in rows),
        "instances": sorted({row["Instance"] for row in rows}),
    }


def _steps(store: QueryStore, found: _Trace, limits: QueryLimits) -> list[Row]:
    if not found.engine:
        return []
    window = _window(found)
    reach = int(str(window["begin"])) - LONGEST_STEP_NS
    return run(store, _STEPS_SQL, {**window, "reach": reach, "most": MOST_STEPS}, limits)


def _sharers(store: QueryStore, found: _Trace, limits: QueryLimits) -> list[Row]:
    if not found.engine:
        return []
    window = _window(found)
    params: dict[str, object] = {
        **window,
        "id": found.trace_id,
        "instance": semconv.SERVICE_INSTANCE_ID,
        "services": sorted({row["Service"] for row in found.engine}),
        "names": list(COMPUTED),
        "reach": int(str(window["begin"])) - LONGEST_SHARER_NS,
        "most": MOST_SHARERS,
    }
    return run(store, _SHARERS_SQL, params, limits)


def _gauges(store: QueryStore, found: _Trace, limits: QueryLimits) -> list[Row]:
    params: dict[str, object] = {
        "begin": found.begin_ns - GAUGE_MARGIN_NS,
        "end": found.end_ns + GAUGE_MARGIN_NS,
        "most": MOST_GAUGES,
    }
    return run(store, _GAUGES_SQL, params, limits)


def _left(rows: Sequence[Row]) -> int:
    return int(rows[0]["Total"]) - len(rows) if rows else 0


def _end(row: Row) -> int:
    return int(row["StartNs"]) + int(row["Duration"])


def _holds(row: Row, at_ns: int) -> bool:
    return int(row["StartNs"]) <= at_ns < _end(row)


def _phase(row: Row, found: _Trace) -> Phase:
    return Phase(
        span_id=row["SpanId"],
        stage=row["Stage"],
        offset_ns=row["StartNs"] - found.origin_ns,
        duration_ns=row["Duration"],
    )


def _step(row: Row, found: _Trace) -> EngineStep:
    return EngineStep(
        offset_ns=row["StartNs"] - found.origin_ns,
        duration_ns=row["DurationNs"],
        engine=row["Engine"],
        prefill_requests=row["PrefillRequests"],
        prefill_tokens=row["PrefillTokens"],
        decode_requests=row["DecodeRequests"],
        decode_tokens=row["DecodeTokens"],
        running=row["Running"],
        waiting=row["Waiting"],
        kv_cache_usage=row["KvCacheUsage"],
        stages=found.stages_at(row["StartNs"] + row["DurationNs"] // 2),
    )


def _sharer(row: Row, found: _Trace, shared_at: Sequence[int]) -> Sharer:
    return Sharer(
        trace_id=row["TraceId"],
        span_id=row["SpanId"],
        stage=row["Stage"],
        offset_ns=row["StartNs"] - found.origin_ns,
        duration_ns=row["Duration"],
        steps=sum(_holds(row, at) for at in shared_at),
    )


def _gauge(row: Row, found: _Trace) -> Gauge:
    return Gauge(
        name=row["Name"],
        unit=row["Unit"],
        service=row["Service"],
        attributes=row["Attrs"],
        points=tuple(
            Point(offset_ns=at - found.origin_ns, value=value) for at, value in row["Points"]
        ),
    )
