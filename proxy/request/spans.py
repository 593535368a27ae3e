"""A finished record as spans: the root with the whole record, its stages below it."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.trace import SpanKind

from proxy.request.call import CallStages, Undivided
from proxy.request.model_call import ModelCall
from proxy.request.record import RequestRecord, RequestStatus
from tracer import semconv
from tracer.clock import Anchor
from tracer.ids import IdSource
from tracer.spans import AttributeValue, SpanDraft
from tracer.stages import Stage, StageInterval

STALLS = 3
"""Most stalls told of one call."""
ID_LIMIT = 128
"""Most characters of a response's id: a client may have chosen it."""


def span_count(record: RequestRecord) -> int:
    """How many spans :func:`drafts` makes of ``record``, without making them."""
    stages = sum(
        1 + len(s.intervals()) + (s.undivided is not None) for _, s in record.stages
    )
    alone = len(record.prompts) + len(record.marks.runs)
    return 1 + stages + alone + (record.deliver is not None)


def drafts(record: RequestRecord, anchor: Anchor, ids: IdSource) -> list[SpanDraft]:
    """All spans of one request, root first, placed on the wall clock by ``anchor``."""
    root = SpanDraft(
        name=f"{record.method} {record.route}" if record.route else record.method,
        span_id=record.span_id,
        parent_id=record.parent_span_id,
        start_unix_ns=anchor.to_unix_ns(record.marks.start_mono_ns),
        end_unix_ns=anchor.to_unix_ns(record.marks.end_mono_ns),
        kind=SpanKind.SERVER,
        attributes=dict(_root_attributes(record)),
        error=record.status is RequestStatus.ERROR and not 400 <= record.http_status < 500,
        remote_parent=record.parent_span_id is not None,
    )
    made = [root]
    for number, prompt in enumerate(record.prompts):
        first = dict(_handoff(record)) if number == 0 else {}
        made.append(_stage(prompt, root.span_id, anchor, ids, first))
    made += [run.draft(root.span_id, anchor) for run in record.marks.runs]
    for call, stages in record.stages:
        made += _call(record, call, stages, root.span_id, anchor, ids)
    if record.deliver is not None:
        made.append(_stage(record.deliver, root.span_id, anchor, ids, {}))
    return made


def _stage(
    interval: StageInterval,
    parent_id: int,
    anchor: Anchor,
    ids: IdSource,
    attributes: dict[str, AttributeValue],
    events: list[tuple[str, int, dict[str, AttributeValue]]] | None = None,
) -> SpanDraft:
    return SpanDraft(
        name=str(interval.stage),
        span_id=ids.span_id(),
        parent_id=parent_id,
        start_unix_ns=anchor.to_unix_ns(interval.start_ns),
        end_unix_ns=anchor.to_unix_ns(interval.end_ns),
        attributes={semconv.STAGE: str(interval.stage), **attributes},
        events=events or [],
    )


def _handoff(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    if record.handoff_ns is not None:
        yield semconv.HANDOFF_NS, record.handoff_ns


def _call(
    record: RequestRecord,
    call: ModelCall,
    stages: CallStages,
    parent_id: int,
    anchor: Anchor,
    ids: IdSource,
) -> list[SpanDraft]:
    """The model call's span from hand-over to its last token, and its stages."""
    last = max((i.end_ns for i in stages.intervals()), default=call.handed_mono_ns)
    if stages.undivided is not None:
        last = max(last, stages.undivided.end_ns)
    end = last if call.finished else max(last, call.ended_mono_ns or last)
    end = min(end, record.marks.end_mono_ns)  # what the engine still does is no part of the request
    model = call.model or record.model
    span = SpanDraft(
        name=f"{call.operation} {model}".strip() or record.method,
        span_id=call.span_id or ids.span_id(),
        parent_id=parent_id,
        start_unix_ns=anchor.to_unix_ns(call.handed_mono_ns),
        end_unix_ns=anchor.to_unix_ns(max(end, call.handed_mono_ns)),
        kind=call.span_kind,
        attributes={**dict(_call_attributes(record, call, model)), **call.extra()},
        events=[(name, anchor.to_unix_ns(at), {}) for name, at in call.events()],
        error=call.error_type is not None
        and (call.superseded or record.status is RequestStatus.ERROR),
    )
    parts = [span]
    if stages.undivided is not None:
        parts.append(_undivided(stages.undivided, span.span_id, anchor, ids))
    for interval in stages.intervals():
        events = _preemptions(call, interval, anchor)
        if interval.stage is Stage.DECODE:
            events = sorted(events + _stalls(call, anchor), key=lambda e: e[1])
        parts.append(_stage(interval, span.span_id, anchor, ids, {}, events))
    return parts


def _undivided(wait: Undivided, parent_id: int, anchor: Anchor, ids: IdSource) -> SpanDraft:
    return SpanDraft(
        name=wait.name,
        span_id=ids.span_id(),
        parent_id=parent_id,
        start_unix_ns=anchor.to_unix_ns(wait.start_ns),
        end_unix_ns=anchor.to_unix_ns(wait.end_ns),
        attributes={semconv.DIVISIBLE: False},
    )


def _preemptions(
    call: ModelCall, interval: StageInterval, anchor: Anchor
) -> list[tuple[str, int, dict[str, AttributeValue]]]:
    """``preempted`` and ``resumed`` events that lie inside ``interval``."""
    marks = [("preempted", p.at_mono_ns) for p in call.preemptions]
    marks += [("resumed", p.resumed_mono_ns) for p in call.preemptions if p.resumed_mono_ns]
    if interval.stage is Stage.QUEUE:
        return []
    inside = [(n, at) for n, at in marks if interval.start_ns <= at <= interval.end_ns]
    return [(name, anchor.to_unix_ns(at), {}) for name, at in sorted(inside, key=lambda m: m[1])]


def _stalls(
    call: ModelCall, anchor: Anchor
) -> list[tuple[str, int, dict[str, AttributeValue]]]:
    """``stall`` events: the longest gaps between tokens, where they stand out.

    At most ``STALLS`` of them, each at least twice the choice's median gap; the event
    is at the gap's start.
    """
    found: list[tuple[int, int]] = []
    for choice in call.choices.values():
        if choice.first_mono_ns is None or len(choice.gaps_ns) < 2:
            continue
        by_length = sorted(choice.gaps_ns)
        usual = by_length[len(by_length) // 2]
        if by_length[-1] < 2 * usual:
            continue
        at = choice.first_mono_ns
        for gap in choice.gaps_ns:
            if gap >= 2 * usual:
                found.append((gap, at))
            at += gap
    longest = sorted(found, reverse=True)[:STALLS]
    return [("stall", anchor.to_unix_ns(at), {semconv.STALL_NS: gap}) for gap, at in longest]


def _call_attributes(
    record: RequestRecord, call: ModelCall, model: str
) -> Iterator[tuple[str, AttributeValue]]:
    if call.error_type:
        yield semconv.ERROR_TYPE, call.error_type
    if not call.operation:
        return
    yield semconv.GEN_AI_OPERATION_NAME, call.operation
    yield semconv.GEN_AI_PROVIDER_NAME, call.provider
    if model:
        yield semconv.GEN_AI_REQUEST_MODEL, model
    if call.request_id:
        yield semconv.GEN_AI_RESPONSE_ID, call.request_id[:ID_LIMIT]
    yield from _streamed(record, call)
    if call.max_tokens is not None:
        yield semconv.GEN_AI_REQUEST_MAX_TOKENS, call.max_tokens
    if call.n != 1:
        yield semconv.GEN_AI_REQUEST_CHOICE_COUNT, call.n
    if call.finish_reasons:
        reasons = [call.finish_reasons[i] for i in sorted(call.finish_reasons)]
        yield semconv.GEN_AI_RESPONSE_FINISH_REASONS, reasons
    for name, count in (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, call.input_tokens),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, call.output_tokens),
        (semconv.GEN_AI_USAGE_CACHE_READ, call.cached_tokens),
        (semconv.GEN_AI_USAGE_REASONING, call.reasoning_tokens),
    ):
        if count is not None:
            yield name, count


def _streamed(record: RequestRecord, call: ModelCall) -> Iterator[tuple[str, AttributeValue]]:
    if not record.marks.stream:
        return
    yield semconv.GEN_AI_REQUEST_STREAM, True
    if record.marks.first_chunk_mono_ns is not None:
        to_chunk = record.marks.first_chunk_mono_ns - call.handed_mono_ns
        yield semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, max(0, to_chunk) / 1e9


def _root_attributes(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    yield semconv.RECORD_VERSION, semconv.RECORD_VERSION_NOW
    yield semconv.HTTP_REQUEST_METHOD, record.method
    if record.route:
        yield semconv.HTTP_ROUTE, record.route
    if record.http_status:
        yield semconv.HTTP_RESPONSE_STATUS_CODE, record.http_status
    yield semconv.STATUS, str(record.status)
    if record.error_type:
        yield semconv.ERROR_TYPE, record.error_type
    yield semconv.OPERATION, record.operation
    yield semconv.MODEL, record.model
    yield semconv.SOURCE, record.source
    if record.source_detail:
        yield semconv.SOURCE_DETAIL, record.source_detail
    if record.done_seen is not None:
        yield semconv.DONE_SEEN, record.done_seen
    yield semconv.STREAM, record.marks.stream
    if record.repairs:
        yield semconv.REPAIRS, list(record.repairs)
    for key, value in record.tags.items():
        yield semconv.TAG_PREFIX + key, value
    yield from _times(record)
    yield from _first_tokens(record)
    yield from _tokens(record)
    yield from _arrival(record)


def _times(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    yield semconv.E2E_NS, record.e2e_ns
    for stage in Stage:
        yield semconv.stage_ns(stage), record.partition.exclusive_ns[stage]
        if count := record.partition.counts[stage]:
            yield semconv.stage_count(stage), count
    yield from _handoff(record)
    yield semconv.PREEMPTED_NS, record.preempted_ns
    yield semconv.PREEMPTIONS, sum(len(c.preemptions) for c in record.marks.calls)


def _first_tokens(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    marks = record.marks
    for name, stamp in (
        (semconv.FIRST_CHUNK_NS, marks.first_chunk_mono_ns),
        (semconv.FIRST_TOKEN_NS, marks.first_token_mono_ns),
        (semconv.FIRST_ANSWER_NS, marks.first_answer_mono_ns),
    ):
        if stamp is not None:
            yield name, stamp - marks.start_mono_ns
    if (tpot := record.tpot_ns) is not None:
        yield semconv.TPOT_NS, tpot
    if gaps := record.itl_ns[: semconv.ITL_CAP]:
        yield semconv.ITL_NS, ("%d," * len(gaps) % tuple(gaps))[:-1]  # 0.6 of what join costs
        yield semconv.ITL_KIND, record.itl_kind


def _tokens(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    calls = record.calls
    if not calls or not record.operation:
        return
    rounds = bool(record.marks.runs)  # of a pipeline: one answer, which the last of them ends
    if reason := calls[-1 if rounds else 0].finish_reason:
        yield semconv.FINISH_REASON, reason
    if any(c.internal for c in calls):
        yield from _searched(record)
        return
    yield semconv.CHOICES, 1 if rounds else sum(c.n for c in calls)
    if record.prompt_marks:
        yield semconv.PROMPT_MARKS, record.prompt_marks
    for name, given in (
        (semconv.INPUT_TOKENS, [c.input_tokens for c in calls]),
        (semconv.OUTPUT_TOKENS, [c.output_tokens for c in calls]),
        (semconv.CACHED_TOKENS, [c.cached_tokens for c in calls]),
        (semconv.REASONING_TOKENS, [c.reasoning_tokens for c in calls]),
    ):
        known = [count for count in given if count is not None]
        if len(known) == len(given):  # a part would look like the whole
            yield name, sum(known)


def _searched(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    """Many calls made the answer, with its tokens in none of them: what the answer itself said."""
    usage = record.told_usage
    yield semconv.CHOICES, max(1, record.told_choices)
    told = usage.input_tokens if usage is not None else None
    first = record.calls[0]
    if (count := first.input_tokens if told is None else told) is not None:
        yield semconv.INPUT_TOKENS, count
    if usage is not None and usage.output is not None:
        yield semconv.OUTPUT_TOKENS, usage.output
    if first.cached_tokens is not None:
        yield semconv.CACHED_TOKENS, first.cached_tokens


def _arrival(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    arrival = record.marks.arrival
    yield semconv.IN_FLIGHT, arrival.in_flight
    if arrival.running is not None:
        yield semconv.RUNNING, arrival.running
    if arrival.waiting is not None:
        yield semconv.WAITING, arrival.waiting
    if arrival.warm is not None:
        yield semconv.WARM, arrival.warm
        if arrival.cold_reason:
            yield semconv.COLD_REASON, arrival.cold_reason
