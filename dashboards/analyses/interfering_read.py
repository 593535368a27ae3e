"""What interference needs of the store: steps, baselines, and the spans of the requests around."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dashboards.analyses.interference import LEAST_STEPS, MixedStep, Phase
from dashboards.filters import Where
from dashboards.models.interference import Baseline
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.times import NS_PER_S
from tracer import semconv
from tracer.stages import Stage

MOST_REQUESTS: Final = 10_000
MOST_SPANS: Final = 90_000
MOST_STEPS: Final = 50_000
LONGEST_NS: Final = 3600 * NS_PER_S
"""Requests that began earlier than this before the window are not looked for."""
Id = tuple[str, str]
"""Trace and root span: one request."""

_WINDOW_SQL: Final = """\
SELECT count() AS n, toInt64(min(toUnixTimestamp64Nano(Timestamp))) AS first,
  toInt64(max(toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs))) AS last
FROM {{database:Identifier}}.requests WHERE {picked}"""
_LATEST_SQL: Final = """\
SELECT toUnixTimestamp64Nano(Timestamp) AS first FROM {{database:Identifier}}.requests
WHERE {picked} ORDER BY Timestamp DESC LIMIT 1 OFFSET {before}"""
_STEPS: Final = """\
FROM {database:Identifier}.engine_steps
WHERE Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp <= fromUnixTimestamp64Nano({last:Int64}, 'UTC') AND DecodeRequests > 0"""
_ENGINES_SQL: Final = (
    "SELECT ServiceInstance AS Instance, uniqExact(Engine) AS Engines, count() AS N, "
    f"countIf(PrefillRequests > 0) AS Mixed {_STEPS} GROUP BY Instance"
)
_BASELINE_SQL: Final = (
    "SELECT ServiceInstance AS Instance, DecodeRequests, count() AS N, "
    "toInt64(round(quantileExactInclusive(0.5)(DurationNs))) AS Ns "
    f"{_STEPS} AND PrefillRequests = 0 "
    "GROUP BY Instance, DecodeRequests ORDER BY Instance, DecodeRequests"
)
_MIXED_SQL: Final = (
    "SELECT ServiceInstance AS Instance, toUnixTimestamp64Nano(Timestamp) AS StartNs, DurationNs, "
    f"DecodeRequests {_STEPS} AND PrefillRequests > 0 ORDER BY Timestamp DESC LIMIT {{most:UInt32}}"
)
_TIME: Final = (
    "Timestamp >= fromUnixTimestamp64Nano({reach:Int64}, 'UTC') AND "
    "Timestamp <= fromUnixTimestamp64Nano({last:Int64}, 'UTC')"
)
_AROUND: Final = (
    f"{_TIME} AND "
    "toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs) >= {first:Int64} "
    "AND ServiceInstance IN {instances:Array(String)}"
)
_REQUESTS: Final = f"""\
FROM {{database:Identifier}}.requests WHERE {_AROUND}
ORDER BY Timestamp DESC, TraceId, SpanId LIMIT {{most:UInt32}}"""
_REQUESTS_SQL: Final = f"""\
SELECT TraceId, SpanId, ServiceInstance AS Instance, if(isNull(InputTokens), NULL,
  toInt64(assumeNotNull(InputTokens)) - toInt64(ifNull(CachedTokens, 0))) AS Fresh,
  count() OVER () AS Every
{_REQUESTS}"""
_IN_TIME: Final = f"""\
TraceId IN (SELECT TraceId {_REQUESTS}) AND {_TIME}"""
_PHASES_SQL: Final = f"""\
SELECT s.TraceId AS TraceId, c.CallId AS CallId, c.RootId AS RootId, s.Stage AS Stage, s.StartNs AS StartNs,
  s.Duration AS Duration, s.Marks AS Marks, s.MarkNs AS MarkNs, count() OVER () AS Every
FROM (
  SELECT TraceId, ParentSpanId AS CallId, SpanAttributes[{{stage_key:String}}] AS Stage,
    toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration, Events.Name AS Marks,
    arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS MarkNs
  FROM {{database:Identifier}}.otel_traces WHERE {_IN_TIME} AND Stage IN ('prefill', 'decode')
) AS s
INNER JOIN (
  SELECT TraceId, SpanId AS CallId, ParentSpanId AS RootId
  FROM {{database:Identifier}}.otel_traces WHERE {_IN_TIME}
) AS c ON s.TraceId = c.TraceId AND s.CallId = c.CallId
ORDER BY StartNs DESC LIMIT {{most_spans:UInt32}}"""  # noqa: S608  our own words alone


@dataclass(slots=True)
class Around:
    """All that lies in the window of the chosen requests; requests are numbered."""

    ids: list[Id] = field(default_factory=list)
    number: dict[Id, int] = field(default_factory=dict)
    mixed: dict[str, list[MixedStep]] = field(default_factory=dict)
    known: dict[str, dict[int, int]] = field(default_factory=dict)
    decodes: dict[str, list[Phase]] = field(default_factory=dict)
    prefills: dict[str, list[Phase]] = field(default_factory=dict)
    baselines: tuple[Baseline, ...] = ()
    first_ns: int | None = None
    steps: int = 0
    mixed_steps: int = 0
    mixed_left_out: int = 0
    without_baseline: int = 0
    several_engines: int = 0
    requests_left_out: int = 0
    spans_left_out: int = 0


def latest(store: QueryStore, picked: Where, limits: QueryLimits) -> Where:
    """The latest ``MOST_REQUESTS`` requests of ``picked``, and those of the same instant.

    So the steps and spans around them are those of their time, however long the window is.

    Raises:
        UnavailableError: the store gave no answer.
    """
    sql = _LATEST_SQL.format(picked=picked.sql, before=MOST_REQUESTS - 1)
    edge = run(store, sql, picked.params, limits)
    if not edge:
        return picked
    since = "Timestamp >= fromUnixTimestamp64Nano({latest_since:Int64}, 'UTC')"
    return Where(
        f"{since} AND {picked.sql}", {**picked.params, "latest_since": edge[0]["first"]}
    )


def read_around(store: QueryStore, picked: Where, limits: QueryLimits) -> Around:
    """The steps in the window of ``picked``, and the requests that ran in it.

    Raises:
        UnavailableError: the store gave no answer.
    """
    found = Around()
    window = run(store, _WINDOW_SQL.format(picked=picked.sql), picked.params, limits)[0]
    if not window["n"]:
        return found
    params: dict[str, object] = {"first": window["first"], "last": window["last"]}
    found.first_ns = int(window["first"])
    engines = run(store, _ENGINES_SQL, params, limits)
    found.steps = sum(int(row["N"]) for row in engines)
    found.mixed_steps = sum(int(row["Mixed"]) for row in engines)
    found.several_engines = sum(int(row["Mixed"]) for row in engines if row["Engines"] > 1)
    single = {row["Instance"] for row in engines if row["Engines"] == 1}
    _read_baselines(found, run(store, _BASELINE_SQL, params, limits), single)
    _read_mixed(found, run(store, _MIXED_SQL, {**params, "most": MOST_STEPS}, limits), single)
    if found.mixed:
        more = {
            "instances": sorted(found.mixed), "most": MOST_REQUESTS, "most_spans": MOST_SPANS,
            "stage_key": semconv.STAGE, "reach": max(0, int(window["first"]) - LONGEST_NS),
        }  # fmt: skip
        _read_phases(
            found,
            run(store, _REQUESTS_SQL, {**params, **more}, limits),
            run(store, _PHASES_SQL, {**params, **more}, limits),
        )
    return found


def _read_baselines(found: Around, rows: list[Row], single: set[str]) -> None:
    kept = [row for row in rows if row["Instance"] in single]
    found.baselines = tuple(
        Baseline(
            instance=row["Instance"], decode_requests=row["DecodeRequests"], steps=row["N"],
            ns=row["Ns"],
        )
        for row in kept
    )  # fmt: skip
    known: dict[str, dict[int, int]] = defaultdict(dict)
    for row in kept:
        if int(row["N"]) >= LEAST_STEPS:
            known[row["Instance"]][int(row["DecodeRequests"])] = int(row["Ns"])
    found.known = known


def _read_mixed(found: Around, rows: list[Row], single: set[str]) -> None:
    found.mixed_left_out = found.mixed_steps - len(rows)
    for row in rows:
        if row["Instance"] not in single:
            continue
        if not found.known.get(row["Instance"]):
            found.without_baseline += 1
            continue
        step = MixedStep(int(row["StartNs"]), int(row["DurationNs"]), int(row["DecodeRequests"]))
        found.mixed.setdefault(row["Instance"], []).append(step)
    for steps in found.mixed.values():
        steps.sort(key=lambda one: one.middle_ns)


def _read_phases(found: Around, requests: list[Row], spans: list[Row]) -> None:
    fresh: list[float | None] = []
    instance: list[str] = []
    for row in requests:
        found.number[row["TraceId"], row["SpanId"]] = len(found.ids)
        found.ids.append((row["TraceId"], row["SpanId"]))
        fresh.append(None if row["Fresh"] is None else max(0.0, float(row["Fresh"])))
        instance.append(row["Instance"])
    found.requests_left_out = _left_out(requests)
    found.spans_left_out = _left_out(spans)
    told = [one for one in fresh if one is not None]
    usual = sum(told) / len(told) if told else 1.0
    for row in spans:
        number = found.number.get((row["TraceId"], row["CallId"]))  # right below the root
        if number is None:
            number = found.number.get((row["TraceId"], row["RootId"]))
        if number is None:
            continue
        weight = fresh[number]
        start = int(row["StartNs"])
        phase = Phase(
            number, start, start + int(row["Duration"]),
            usual if weight is None else weight,
            tuple(_away(row, start + int(row["Duration"]))),
        )  # fmt: skip
        kind = found.decodes if row["Stage"] == Stage.DECODE else found.prefills
        kind.setdefault(instance[number], []).append(phase)


def _left_out(rows: list[Row]) -> int:
    """How many there are beyond the limit: each row tells of how many it is."""
    return int(rows[0]["Every"]) - len(rows) if rows else 0


def _away(row: Mapping[str, object], end_ns: int) -> Iterator[tuple[int, int]]:
    """From each ``preempted`` event to the next ``resumed`` one, or to the span's end."""
    since: int | None = None
    marks = zip(row["Marks"], row["MarkNs"], strict=True)  # type: ignore[call-overload]
    for name, at in sorted(marks, key=lambda mark: int(mark[1])):
        if name == "preempted" and since is None:
            since = int(at)
        elif name == "resumed" and since is not None:
            yield since, int(at)
            since = None
    if since is not None:
        yield since, end_ns
