"""Which stage holds which instant of a tree that has no record of ours.

Each span gives its own interval, less what is below it; the law of ``tracer.stages``
does the rest. What nobody divided (an answer's time to its first token, say) competes
for the critical path as ``unattributed`` and is never spread over the stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from collectors.normalise.call import first_tokens_of
from collectors.normalise.classify import MODEL_CALLS, Kind, stage_of
from collectors.normalise.engine import stages_of
from collectors.normalise.tree import Node
from tracer.stages import Partition, Stage, StageInterval, partition

MOST_INTERVALS = 1000
"""More than these are merged stage by stage first, which bounds the time a trace may take."""
INSIDE_A_CALL = (Stage.PROMPT, Stage.QUEUE, Stage.PREFILL, Stage.DECODE, Stage.DELIVER)
_PLAIN = {Kind.RETRIEVAL: Stage.RETRIEVAL, Kind.TOOL: Stage.TOOL, Kind.PROMPT: Stage.PROMPT}


def divide(root: Node) -> Partition:
    """The partition of the root span's time; counts are calls, retrievals and tools."""
    alone = not any(
        node.kind in (Kind.LLM, Kind.ENGINE, Kind.RETRIEVAL, Kind.TOOL) for node in root.below()
    )
    made: dict[int, list[StageInterval]] = {}
    for node in reversed(list(root.below())):  # children before their parents
        inner = [i for child in node.children for i in made.pop(id(child))]
        made[id(node)] = _with_own(node, inner, alone)
    intervals = made[id(root)]
    if len(intervals) > MOST_INTERVALS:
        intervals = _merged(intervals)
    found = partition(root.span.start_ns, root.span.end_ns, intervals)
    return Partition(found.segments, found.exclusive_ns, _counts(root, alone))


def calls_of(root: Node) -> list[Node]:
    """The model calls: the innermost LLM spans, and engine or embedding spans that stand alone."""
    outer = {id(a) for node in root.below() if node.kind is Kind.LLM for a in node.above()}
    return [node for node in root.below() if _is_a_call(node, outer)]


def _is_a_call(node: Node, outer: set[int]) -> bool:
    if node.kind is Kind.LLM:
        return id(node) not in outer
    alone = node.kind in (Kind.ENGINE, Kind.EMBEDDING)
    return alone and not any(above.kind in MODEL_CALLS for above in node.above())


def _with_own(node: Node, inner: list[StageInterval], alone: bool) -> list[StageInterval]:
    """The intervals below a node and what is left of its own."""
    if node.kind in (Kind.LLM, Kind.ENGINE):
        inner = [i for i in inner if i.stage is not Stage.UNATTRIBUTED]
        divided = any(i.stage in (Stage.PREFILL, Stage.DECODE) for i in inner)
        own = [_whole(node, Stage.UNATTRIBUTED)] if divided else _of_a_call(node)
    elif node.kind is Kind.EMBEDDING:
        own = [_whole(node, Stage.UNATTRIBUTED if alone else Stage.RETRIEVAL)]
    elif node.kind is Kind.STAGE:
        own = [_whole(node, stage_of(node.span) or Stage.UNATTRIBUTED)]
    elif node.kind in _PLAIN:
        own = [_whole(node, _PLAIN[node.kind])]
    else:
        return inner
    return [*_less(own, inner), *inner]


def _whole(node: Node, stage: Stage) -> StageInterval:
    return StageInterval(stage, node.span.start_ns, node.span.end_ns)


def _of_a_call(node: Node) -> list[StageInterval]:
    """What the span itself says: the engine's stages, or the wait and the stream."""
    if node.kind is Kind.ENGINE:
        told = list(stages_of(node.span).intervals)
        return [*told, *_less([_whole(node, Stage.UNATTRIBUTED)], told)]
    first = first_tokens_of(node.span)
    if first.token_ns is None or first.last_ns is None:
        return [_whole(node, Stage.UNATTRIBUTED)]
    decode = StageInterval(Stage.DECODE, first.token_ns, max(first.token_ns, first.last_ns))
    return [decode, *_less([_whole(node, Stage.UNATTRIBUTED)], [decode])]


def _less(own: list[StageInterval], others: Iterable[StageInterval]) -> list[StageInterval]:
    """The parts of ``own`` that none of ``others`` covers; an empty one stays as it is."""
    holes = _union(others)
    left: list[StageInterval] = []
    for one in own:
        if one.start_ns == one.end_ns:
            left.append(one)
            continue
        at = one.start_ns
        for begin, end in holes:
            if end <= at or begin >= one.end_ns:
                continue
            if begin > at:
                left.append(StageInterval(one.stage, at, begin))
            at = end
        if at < one.end_ns:
            left.append(StageInterval(one.stage, at, one.end_ns))
    return left


def _union(intervals: Iterable[StageInterval]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in sorted((i.start_ns, i.end_ns) for i in intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _merged(intervals: list[StageInterval]) -> list[StageInterval]:
    """Overlapping runs of a stage as one, the longest if there are still too many."""
    found = [
        StageInterval(stage, begin, end)
        for stage in Stage
        for begin, end in _union(i for i in intervals if i.stage is stage)
    ]
    return sorted(found, key=lambda i: i.start_ns - i.end_ns)[:MOST_INTERVALS]


def _counts(root: Node, alone: bool) -> dict[Stage, int]:
    """How often each stage ran: once a call, however many spans its engine made of it."""
    counts = dict.fromkeys(Stage, 0)
    for call in calls_of(root):
        if call.kind is Kind.EMBEDDING and not alone:
            continue
        parts = [*(above for above in call.above() if above.kind is Kind.LLM), *call.below()]
        for stage in INSIDE_A_CALL:
            counts[stage] += any(_bears(node, stage) for node in parts)
    for node in root.below():
        inside = {_stage(above, alone) for above in node.above()}
        stage = _stage(node, alone)
        if stage is Stage.TOOL or (stage is Stage.RETRIEVAL and stage not in inside):
            counts[stage] += 1
        elif node.kind is Kind.PROMPT or (
            node.kind is Kind.STAGE and stage in INSIDE_A_CALL and not _in_a_call(node)
        ):
            counts[stage] += stage not in inside
    return counts


def _in_a_call(node: Node) -> bool:
    return any(above.kind in (Kind.LLM, Kind.ENGINE) for above in node.above())


def _stage(node: Node, alone: bool) -> Stage:
    if node.kind is Kind.STAGE:
        return stage_of(node.span) or Stage.UNATTRIBUTED
    if node.kind is Kind.EMBEDDING and not alone:
        return Stage.RETRIEVAL
    return _PLAIN.get(node.kind, Stage.UNATTRIBUTED)


def _bears(node: Node, stage: Stage) -> bool:
    if node.kind is Kind.STAGE:
        return stage_of(node.span) is stage
    if node.kind not in (Kind.LLM, Kind.ENGINE):
        return False
    return any(i.stage is stage for i in _of_a_call(node))
