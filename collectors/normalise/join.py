"""An engine's own span joined into the record of the proxy before it, by trace id.

The proxy sees when it handed the call over and when tokens came; the engine says how long
the call was queued, prefilled and decoded. The proxy's clock keeps the place, the engine's
the lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

from collectors.normalise.classify import Kind, stage_of
from collectors.normalise.engine import EngineStages, EngineTimes, place, times_of
from collectors.normalise.names import LATENCY_FIRST_TOKEN
from collectors.normalise.row import Row, stage_columns
from collectors.normalise.tree import Node
from collectors.normalise.usage import tree_usage
from tracer import semconv
from tracer.stages import Partition, Stage, StageInterval, partition

DETAIL = "engine_span"
UPSTREAM = "upstream"


def joined(record: Node, before: Mapping[str, object]) -> Row | None:
    """What changes in the row ``before`` of ``record``; None where no engine span belongs to it."""
    if before.get("Source") != UPSTREAM:
        return None
    intervals: list[StageInterval] = []
    repairs: set[str] = set()
    replaced: set[int] = set()
    for call in record.children:
        placed = _placed(call)
        if placed is not None:
            repairs.update(placed.repairs)
            replaced.add(id(call))
            intervals += placed.intervals
    if not replaced:
        return None
    for node in _own(record, replaced):
        stage = stage_of(node.span)
        if stage is not None:
            intervals.append(StageInterval(stage, node.span.start_ns, node.span.end_ns))
    begin = record.span.start_ns
    divided = partition(begin, begin + int(str(before["E2ENs"])), intervals)
    counts = {**divided.counts, Stage.DELIVER: min(1, divided.counts[Stage.DELIVER])}
    return {
        **stage_columns(Partition(divided.segments, divided.exclusive_ns, counts)),
        **_tokens(record, before),
        "SourceDetail": _detail(record),
        "Repairs": sorted({*_list(before["Repairs"]), *repairs}),
    }


def _own(record: Node, without: set[int]) -> list[Node]:
    """The record's stage spans, but for those of the calls that were joined."""
    found: list[Node] = []
    for child in record.children:
        if id(child) in without:
            continue
        found += [child] if child.kind is Kind.STAGE else []
        found += [node for node in child.children if node.kind is Kind.STAGE]
    return found


def _placed(call: Node) -> EngineStages | None:
    """The engine's stages of one call of the proxy, on the proxy's clock."""
    if semconv.ATTEMPT not in call.span.attributes:
        return None
    times = _engine_times([node for node in call.below() if node.kind is Kind.ENGINE])
    if times is None:
        return None
    decode = next((c.span for c in call.children if stage_of(c.span) is Stage.DECODE), None)
    waits = [c.span.end_ns for c in call.children if semconv.DIVISIBLE in c.span.attributes]
    end = decode.end_ns if decode is not None else max(waits, default=call.span.end_ns)
    first = decode.start_ns if decode is not None else end - times.decode_ns
    placed = place(times, call.span.start_ns, end, first)
    kept = tuple(i for i in placed.intervals if i.stage is not Stage.PROMPT)
    return EngineStages(kept, placed.first_token_ns, placed.last_token_ns, placed.repairs)


def _engine_times(engines: list[Node]) -> EngineTimes | None:
    """One engine span a choice: queued until the first is scheduled, decoded to the last token."""
    marks: list[tuple[int, int, int, int]] = []
    for node in engines:
        times = times_of(node.span)
        if times is None:
            continue
        told = node.span.seconds(LATENCY_FIRST_TOKEN)
        first = times.queue_ns + times.prefill_ns if told is None else told
        scheduled = first - times.prefill_ns
        marks.append((scheduled - times.queue_ns, scheduled, first, first + times.decode_ns))
    if not marks:
        return None
    queued, scheduled, first, last = (
        min(m[0] for m in marks), min(m[1] for m in marks), min(m[2] for m in marks),
        max(m[3] for m in marks),
    )  # fmt: skip
    return EngineTimes(scheduled - queued, first - scheduled, last - first)


def _tokens(record: Node, before: Mapping[str, object]) -> Row:
    """Counts that the answer itself did not tell."""
    usage = tree_usage(record)
    told = {"InputTokens": usage.input, "OutputTokens": usage.output, "CachedTokens": usage.cached}
    return {name: n for name, n in told.items() if before.get(name) is None and n is not None}


def _detail(record: Node) -> str:
    told = record.span.attributes.get(semconv.SOURCE_DETAIL, "")
    return ",".join(dict.fromkeys([*(told.split(",") if told else []), DETAIL]))


def _list(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []
