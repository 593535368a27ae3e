"""The critical paths of stored traces: of one, and of many taken together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from dashboards.analyses.compare import quantile
from dashboards.analyses.groups import Key, whole_and_groups
from dashboards.analyses.path import SpanPlace, request_path
from dashboards.filters import Filters, Where
from dashboards.models.path import CriticalPath, PathFigures, PathStep, RequestPath, TracePath
from dashboards.models.trace import Trace
from dashboards.queries.base import QueryLimits, QueryStore, Row, count_of, run
from dashboards.queries.sample import Part, part_of, within
from dashboards.times import in_words, many, percent
from dashboards.visible import short
from tracer import semconv
from tracer.stages import Stage

MOST_REQUESTS: Final = 1000
MOST_SPANS: Final = 90_000
_RULE: Final = (
    (
        "The path is walked backwards from the end: the stage that ended last before the point "
        "reached holds the time back to its own start."
    ),
    (
        "If gone is at most what a request would have been shorter by: the time on the path in "
        "which no other stage ran."
    ),
)
_CHOSEN_SQL: Final = """\
SELECT TraceId, SpanId, toUnixTimestamp64Nano(Timestamp) AS StartNs, E2ENs, UnattributedNs
FROM {{database:Identifier}}.requests WHERE {picked}
ORDER BY cityHash64(TraceId, SpanId) LIMIT {most}"""
_SPANS_SQL: Final = """\
SELECT TraceId, SpanId, ParentSpanId, SpanName, SpanAttributes[{stage_key:String}] AS Stage,
  toUnixTimestamp64Nano(Timestamp) AS StartNs, Duration
FROM {database:Identifier}.otel_traces
WHERE TraceId IN {traces:Array(String)}
  AND Timestamp >= fromUnixTimestamp64Nano({first:Int64}, 'UTC')
  AND Timestamp <= fromUnixTimestamp64Nano({last:Int64}, 'UTC')"""
_SPANS_END: Final = "ORDER BY Timestamp LIMIT {most:UInt32}"


def trace_path(found: Trace) -> TracePath:
    """The path of every request in a trace that was read already."""
    spans = [
        SpanPlace(
            one.span_id, one.parent_span_id or "", one.name, one.stage or "",
            one.start_unix_ns, one.start_unix_ns + one.duration_ns,
        )
        for one in found.spans
    ]  # fmt: skip
    roots = {one.span_id: one for one in spans}
    paths: list[RequestPath] = []
    for one in found.requests:
        if one.span_id in roots:
            path = request_path(found.trace_id, roots[one.span_id], spans, found.start_unix_ns)
            rest = sum(part.ns for part in one.stages if part.stage == Stage.UNATTRIBUTED)
            paths += [path] if has_its_spans(path, one.e2e_ns - rest) else []
    return TracePath(
        trace_id=found.trace_id, requests=tuple(paths),
        without_spans=len(found.requests) - len(paths), spans_left_out=found.spans_left_out,
        assumptions=_RULE,
    )  # fmt: skip


def has_its_spans(path: RequestPath, attributed_ns: int) -> bool:
    """Whether the spans behind ``path`` tell what the request's record tells.

    Not where they hold less than half of the ``attributed_ns`` that the record gives to stages: of
    a request of which the root alone is stored, the path would say that all is unattributed.
    """
    held = sum(one.ns for one in path.segments if one.stage != Stage.UNATTRIBUTED)
    return 2 * held >= attributed_ns


def critical_paths(
    store: QueryStore,
    filters: Filters,
    by: Sequence[str] = (),
    limits: QueryLimits | None = None,
) -> CriticalPath:
    """The paths of the chosen requests (at most ``MOST_REQUESTS``, by hash), added up.

    Raises:
        BadValueError: ``by`` holds a name that is no dimension.
        UnavailableError: the store gave no answer.
    """
    bound = limits or QueryLimits()
    part = part_of(store, filters, bound, count=False)

    def ask(picked: Where, key: Key) -> PathFigures:
        return _figures(store, picked, key, part, bound)

    overall, groups, left = whole_and_groups(store, part.where, by, bound, ask)
    part = part.reading(overall.chosen)
    return CriticalPath(
        filters=filters, by=tuple(by), overall=overall, groups=groups, groups_left_out=left,
        sampled=part.sampled,
        reading=(*_reading(overall), *part.told),
        assumptions=(
            *_RULE,
            (
                f"At most {MOST_REQUESTS:,} requests, chosen by a hash of the trace id; those whose "
                "spans are not stored (or hold less than half of what the record tells), or lie "
                f"beyond the first {MOST_SPANS:,} spans, are counted and left out."
            ),
        ),
    )  # fmt: skip


def _figures(
    store: QueryStore, picked: Where, key: Key, part: Part, limits: QueryLimits
) -> PathFigures:
    sql = _CHOSEN_SQL.format(picked=picked.sql, most=MOST_REQUESTS)
    chosen = run(store, sql, picked.params, limits)
    total = count_of(store, picked, limits)
    spans = read_spans(store, chosen, part, limits) if chosen else {}
    paths: list[RequestPath] = []
    for row in chosen:
        there = spans.get(row["TraceId"], [])
        root = next((one for one in there if one.span_id == row["SpanId"]), None)
        if root is not None:
            path = request_path(row["TraceId"], root, there, root.start_ns)
            attributed = int(row["E2ENs"]) - int(row["UnattributedNs"])
            paths += [path] if has_its_spans(path, attributed) else []
    steps = _added(paths)
    return PathFigures(
        key=key,
        chosen=total,
        looked_at=len(chosen),
        requests=len(paths),
        without_spans=len(chosen) - len(paths),
        e2e_ns=sum(one.e2e_ns for one in paths),
        beside_ns=sum(one.beside_ns for one in steps),
        steps=steps,
    )


def read_spans(
    store: QueryStore, chosen: Sequence[Row], part: Part, limits: QueryLimits
) -> dict[str, list[SpanPlace]]:
    """The spans of the traces of ``chosen`` that lie in their time, by trace id.

    Of more than ``MOST_SPANS`` the traces of which all were read: a path of some of a request's
    spans would give what the others held to ``unattributed``. Of a part, the store looks for
    them in its slices of time alone, and so long after as the longest of them took.
    """
    params: dict[str, object] = {
        "stage_key": semconv.STAGE,
        "traces": sorted({row["TraceId"] for row in chosen}),
        "first": min(int(row["StartNs"]) for row in chosen),
        "last": max(int(row["StartNs"]) + int(row["E2ENs"]) for row in chosen),
        "most": MOST_SPANS,
    }
    found: dict[str, list[SpanPlace]] = defaultdict(list)
    longest = max(int(row["E2ENs"]) for row in chosen)
    times = f"AND {within(part.slices, after_ns=longest)}" if part.slices else ""
    rows = run(store, f"{_SPANS_SQL} {times} {_SPANS_END}", params, limits)
    read_to = int(rows[-1]["StartNs"]) if len(rows) == MOST_SPANS else None
    cut: set[str] = set()
    if read_to is not None:
        cut = {r["TraceId"] for r in chosen if int(r["StartNs"]) + int(r["E2ENs"]) >= read_to}
    for row in rows:
        if row["TraceId"] in cut:
            continue
        start = int(row["StartNs"])
        found[row["TraceId"]].append(
            SpanPlace(
                row["SpanId"], row["ParentSpanId"], row["SpanName"], row["Stage"],
                start, start + int(row["Duration"]),
            )
        )  # fmt: skip
    return found


def _added(paths: Sequence[RequestPath]) -> tuple[PathStep, ...]:
    """The steps of all paths by stage and name, longest on the path first."""
    kept: dict[tuple[str, str], list[PathStep]] = defaultdict(list)
    for path in paths:
        for step in path.steps:
            kept[step.stage, step.name].append(step)
    e2e = sum(one.e2e_ns for one in paths)
    found: list[PathStep] = []
    for (stage, name), steps in kept.items():
        held = sorted(one.on_path_ns for one in steps)
        found.append(
            PathStep(
                stage=stage, name=name, requests=len(steps), runs=sum(one.runs for one in steps),
                total_ns=sum(one.total_ns for one in steps), on_path_ns=sum(held),
                beside_ns=sum(one.beside_ns for one in steps),
                if_gone_ns=sum(one.if_gone_ns for one in steps),
                share=sum(held) / e2e if e2e else None,
                p50_ns=round(quantile(held, 0.5)), p95_ns=round(quantile(held, 0.95)),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.on_path_ns, one.stage, one.name)))


def _looked_at(found: PathFigures) -> str:
    """How many of the chosen requests the figures are of, and what became of the others."""
    few = f" of {found.chosen:,}, chosen by a hash" if found.looked_at < found.chosen else ""
    return (
        f"Looked at: {many(found.looked_at, 'request')}{few}; {found.requests:,} of them "
        f"{'has its' if found.requests == 1 else 'have their'} spans, and all figures are of those."
    )


def _reading(found: PathFigures) -> tuple[str, ...]:
    if not found.chosen:
        return ("There is no request to look at: widen the window or drop a filter.",)
    if not found.requests:
        return (
            (
                f"Of {many(found.looked_at, 'request')} looked at none has its spans stored: widen "
                "the window or drop a filter."
            ),
        )
    first = found.steps[0]
    said = [] if found.requests == found.chosen else [_looked_at(found)]
    said += [f"{short(first.name)} holds {percent(first.share or 0)} of the critical path."]
    beside = max(found.steps, key=lambda one: one.beside_ns)
    if beside.beside_ns:
        said.append(
            f"{short(beside.name)} ran {in_words(beside.beside_ns)} beside other work, "
            "where a shorter one gains nothing."
        )
    small = [
        one for one in found.steps
        if one.stage != Stage.UNATTRIBUTED and one.on_path_ns and one.if_gone_ns < one.on_path_ns / 2
    ]  # fmt: skip
    if small:
        said.append(
            f"Without {short(small[0].name)} at most {in_words(small[0].if_gone_ns)} of its "
            f"{in_words(small[0].on_path_ns)} on the path would be gained: other work ran beside it."
        )
    return tuple(said)
