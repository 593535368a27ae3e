"""The critical path of requests, from their spans.

A request's path gives each of its instants to one stage span, by the rule of
:func:`tracer.stages.critical_path`: walked backwards from the end, the span that ended
last before the point reached holds the time back to its own start. A stage span that has
stage spans below it (a task of an application around a request through the proxy) stands
only where none of those runs. For the step ``s``:
``on path = sum of its segments``, ``beside = sum of its spans - on path``, and
``if gone = the part of its segments in which no other span runs``: what the request would
have been shorter by, at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboards.models.path import PathStep, RequestPath, Segment
from tracer.stages import Stage, StageInterval, critical_path

NAMED = (Stage.TOOL, Stage.RETRIEVAL)
"""Stages whose spans are told apart by name: there may be several beside each other."""
_STAGES = frozenset(map(str, Stage))


@dataclass(frozen=True, slots=True)
class SpanPlace:
    """What the path needs of a span; ``stage`` is ``""`` for one that is no stage."""

    span_id: str
    parent_id: str
    name: str
    stage: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Work(StageInterval):
    """A piece of a stage span."""

    span_id: str = ""
    name: str = ""


def works_of(root_id: str, spans: Sequence[SpanPlace]) -> list[Work]:
    """The stage spans below the span ``root_id``, each where no stage span below it runs."""
    children: dict[str, list[SpanPlace]] = {}
    for one in spans:
        children.setdefault(one.parent_id, []).append(one)
    order: list[SpanPlace] = []
    seen, stack = {root_id}, [root_id]
    while stack:
        for child in children.get(stack.pop(), ()):
            if child.span_id not in seen:
                seen.add(child.span_id)
                order.append(child)
                stack.append(child.span_id)
    covered: dict[str, list[tuple[int, int]]] = {}
    found: list[Work] = []
    for one in reversed(order):  # children before their parents
        below = merged(covered.pop(one.span_id, []))
        stage = one.stage if one.stage in _STAGES else ""
        mine = [(one.start_ns, one.end_ns)] if stage else []
        covered.setdefault(one.parent_id, []).extend([*below, *mine])
        if not stage:
            continue
        name = one.name if stage in NAMED else stage
        pieces = outside((one.start_ns, one.end_ns), below)
        found += [Work(Stage(stage), a, b, one.span_id, name) for a, b in pieces]
    return found


def merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time without overlaps."""
    found: list[tuple[int, int]] = []
    for a, b in sorted(intervals):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], b))
        else:
            found.append((a, b))
    return found


def outside(whole: tuple[int, int], covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces of ``whole`` that none of ``covered`` touches; all of it where none does."""
    start, end = whole
    pieces, at = [], start
    for a, b in sorted(c for c in covered if c[0] < end and c[1] > start and c[0] < c[1]):
        if a > at:
            pieces.append((at, a))
        at = max(at, b)
    if at < end or start == end:
        pieces.append((at, end))
    return pieces


def request_path(
    trace_id: str, root: SpanPlace, spans: Sequence[SpanPlace], origin_ns: int
) -> RequestPath:
    """The path of the request whose root span is ``root``; ``spans`` are those of its trace."""
    works = works_of(root.span_id, spans)
    segments: list[Segment] = []
    gone: dict[tuple[str, str], int] = {}
    for holder, begin, end in critical_path(root.start_ns, root.end_ns, works):
        stage = str(holder.stage) if holder else str(Stage.UNATTRIBUTED)
        name = holder.name if holder else stage
        segments.append(
            Segment(
                stage=stage, name=name, span_id=holder.span_id if holder else None,
                offset_ns=begin - origin_ns, ns=end - begin,
            )
        )  # fmt: skip
        if holder is not None:
            others = [(w.start_ns, w.end_ns) for w in works if w.name != name or w.stage != stage]
            alone = sum(b - a for a, b in outside((begin, end), others))
            gone[stage, name] = gone.get((stage, name), 0) + alone
        else:
            gone[stage, name] = 0
    return RequestPath(
        trace_id=trace_id, span_id=root.span_id, name=root.name,
        offset_ns=root.start_ns - origin_ns, e2e_ns=root.end_ns - root.start_ns,
        segments=tuple(segments), steps=_steps(root, works, segments, gone),
    )  # fmt: skip


def _steps(
    root: SpanPlace,
    works: Sequence[Work],
    segments: Sequence[Segment],
    gone: dict[tuple[str, str], int],
) -> tuple[PathStep, ...]:
    total: dict[tuple[str, str], int] = {}
    runs: dict[tuple[str, str], set[str]] = {}
    for one in works:
        key = (str(one.stage), one.name)
        inside = min(one.end_ns, root.end_ns) - max(one.start_ns, root.start_ns)
        total[key] = total.get(key, 0) + max(0, inside)
        runs.setdefault(key, set()).add(one.span_id)
    on_path: dict[tuple[str, str], int] = dict.fromkeys(total, 0)
    for part in segments:
        key = (part.stage, part.name)
        on_path[key] = on_path.get(key, 0) + part.ns
    e2e = root.end_ns - root.start_ns
    found = [
        PathStep(
            stage=stage, name=name, requests=1, runs=len(runs.get((stage, name), ())),
            total_ns=max(total.get((stage, name), 0), held), on_path_ns=held,
            beside_ns=max(0, total.get((stage, name), 0) - held),
            if_gone_ns=gone.get((stage, name), 0),
            share=held / e2e if e2e else None, p50_ns=held, p95_ns=held,
        )
        for (stage, name), held in on_path.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.on_path_ns, one.stage, one.name)))
