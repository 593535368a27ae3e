"""An engine's span of one call as stages: vLLM's ``llm_request``, SGLang's request span."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectors.normalise import names
from collectors.normalise.span import Span
from tracer.stages import Stage, StageInterval

REPAIR_CUT = "engine_times_exceed_the_span:cut"
REPAIR_FIRST = "first_token_outside_the_span:left_out"


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """What an engine told of a call, in nanoseconds, in the order in which it happened."""

    queue_ns: int
    prefill_ns: int
    decode_ns: int

    @property
    def total_ns(self) -> int:
        return self.queue_ns + self.prefill_ns + self.decode_ns


@dataclass(frozen=True, slots=True)
class EngineStages:
    """Stages on the wall clock, the first token's time if known, and repairs."""

    intervals: tuple[StageInterval, ...]
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    repairs: tuple[str, ...] = ()


def times_of(span: Span) -> EngineTimes | None:
    """Queue, prefill and decode; None where one is not told.

    SGLang tells no queue on its request span, and its prefill there has the queue inside:
    it is divided by its slices only.
    """
    queue = span.seconds(names.LATENCY_QUEUE)
    prefill = span.seconds(names.LATENCY_PREFILL)
    if queue is None or prefill is None:
        return None
    return EngineTimes(queue, prefill, span.seconds(names.LATENCY_DECODE) or 0)


def stages_of(span: Span) -> EngineStages:
    """The engine's stages, placed in its span by the time to the first token.

    The engine's own clock gives the lengths, the span's the place: the three follow each
    other without a gap. What is before them is the server's preparation (``prompt``), what
    is after them ``deliver``.
    """
    told = span.seconds(names.LATENCY_FIRST_TOKEN)
    beyond = told is not None and span.start_ns + told > span.end_ns
    if beyond:  # the span's end would pass for a first token that was measured
        told = None
    times = times_of(span)
    if times is None:
        made = _undivided(span, told)
    else:
        first = None if told is None else span.start_ns + told
        made = place(times, span.start_ns, span.end_ns, first)
    return replace(made, repairs=(*made.repairs, REPAIR_FIRST)) if beyond else made


def place(times: EngineTimes, start_ns: int, end_ns: int, first_ns: int | None) -> EngineStages:
    """The three stages inside ``[start_ns, end_ns]``, the first token at ``first_ns`` if that fits."""
    repairs: list[str] = []
    before = times.queue_ns + times.prefill_ns
    begin = start_ns if first_ns is None else first_ns - before
    begin = max(start_ns, min(begin, end_ns - times.total_ns))
    if begin + times.total_ns > end_ns:
        repairs.append(REPAIR_CUT)
    made, at = [StageInterval(Stage.PROMPT, start_ns, begin)] if begin > start_ns else [], begin
    for stage, length in (
        (Stage.QUEUE, times.queue_ns),
        (Stage.PREFILL, times.prefill_ns),
        (Stage.DECODE, times.decode_ns),
    ):
        made.append(StageInterval(stage, at, min(at + length, end_ns)))
        at = min(at + length, end_ns)
    if at < end_ns:
        made.append(StageInterval(Stage.DELIVER, at, end_ns))
    first = begin + before if begin + before <= end_ns else None
    return EngineStages(tuple(made), first, at, tuple(repairs))


def _undivided(span: Span, first_token: int | None) -> EngineStages:
    """Only the first token's time is known: what was before it is not divided."""
    decode = span.seconds(names.LATENCY_DECODE)
    if first_token is None:
        return EngineStages(())
    first = min(span.start_ns + first_token, span.end_ns)
    last = span.end_ns if decode is None else min(first + decode, span.end_ns)
    return EngineStages((StageInterval(Stage.DECODE, first, last),), first, last)
