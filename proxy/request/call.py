"""One call of the model: the engine's own stamps, and the stages they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.trace import SpanKind

from tracer.semconv import ITL_CAP
from tracer.spans import AttributeValue
from tracer.stages import Stage, StageInterval

REPAIR_LAST_TOKEN = "last_token_before_first:used_end"  # noqa: S105
REPAIR_ORDER = "stamps_out_of_order:clamped"
NO_STAMPS = "no_engine_stamps"
"""Source detail of a record whose engine call ended before the engine told its stamps."""
BEAM_SEARCH = "beam_search"
"""Source detail of a record whose answer the server searched for with many calls."""


@dataclass(slots=True)
class ChoiceMarks:
    """Token stamps of one choice (one sampled sequence) of a call."""

    tokens: int = 0
    first_mono_ns: int | None = None
    last_mono_ns: int | None = None
    steps: int = 0
    gaps_ns: list[int] = field(default_factory=list)

    @property
    def span_ns(self) -> int | None:
        """First token to last token; None without tokens or with stamps out of order."""
        first, last = self.first_mono_ns, self.last_mono_ns
        return None if first is None or last is None or last < first else last - first

    def add(self, tokens: int, mono_ns: int) -> None:
        """``tokens`` new tokens became ready at ``mono_ns``."""
        if tokens <= 0:
            return
        if self.last_mono_ns is None:
            self.first_mono_ns = mono_ns
        elif len(self.gaps_ns) < ITL_CAP:
            self.gaps_ns.append(max(0, mono_ns - self.last_mono_ns))
        self.last_mono_ns = mono_ns
        self.tokens += tokens
        self.steps += 1


@dataclass(slots=True)
class Preemption:
    """The engine took a running request off; ``resumed_mono_ns`` is None if it never came back."""

    at_mono_ns: int
    resumed_mono_ns: int | None = None


@dataclass(slots=True)
class EngineCall:
    """Marks of one model call, all in nanoseconds of the host's monotonic clock.

    ``handed_mono_ns``: our side made the call; ``queued_mono_ns``: the engine has
    it; ``scheduled_mono_ns``: first scheduling (a later preemption lies inside the
    stage it interrupts); ``prefilled_mono_ns``: the first output, which for a call
    without tokens (embeddings, zero tokens) ends prefill all the same. ``generates``: it
    may give tokens; one that cannot has no count of them. ``internal``:
    one step of a search that the server makes of many calls; its tokens are not the
    answer's. ``cut_off``: it still ran when its request ended. ``prompt``: the ids of its
    tokens, held until the record is made.
    """

    request_id: str
    operation: str
    handed_mono_ns: int
    model: str = ""
    n: int = 1
    max_tokens: int | None = None
    queued_mono_ns: int | None = None
    scheduled_mono_ns: int | None = None
    prefilled_mono_ns: int | None = None
    ended_mono_ns: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    finished: bool = False
    error_type: str | None = None
    choices: dict[int, ChoiceMarks] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    cancel: Callable[[], object] | None = None
    generates: bool = True
    internal: bool = False
    sealed: bool = False
    cut_off: bool = False
    prompt: Sequence[int] = ()

    def seal(self, mono_ns: int) -> None:
        """The record is made of what is known now: what the engine still says is not its own."""
        self.sealed = True
        if self.ended_mono_ns is None:
            self.ended_mono_ns = mono_ns
            self.cut_off = True

    def choice(self, index: int) -> ChoiceMarks:
        return self.choices.setdefault(index, ChoiceMarks())

    def note_queued(self, mono_ns: int) -> None:
        if self.queued_mono_ns is None or mono_ns < self.queued_mono_ns:
            self.queued_mono_ns = mono_ns

    def note_scheduled(self, mono_ns: int) -> None:
        """First scheduling, or the end of a preemption."""
        if self.scheduled_mono_ns is None or mono_ns < self.scheduled_mono_ns:
            self.scheduled_mono_ns = mono_ns
        for open_one in self.preemptions:
            if open_one.resumed_mono_ns is None and mono_ns >= open_one.at_mono_ns:
                open_one.resumed_mono_ns = mono_ns

    def note_preempted(self, mono_ns: int) -> None:
        self.preemptions.append(Preemption(mono_ns))

    def note_output(self, index: int, tokens: int, mono_ns: int) -> None:
        if self.prefilled_mono_ns is None or mono_ns < self.prefilled_mono_ns:
            self.prefilled_mono_ns = mono_ns
        self.choice(index).add(tokens, mono_ns)

    @property
    def output_tokens(self) -> int | None:
        if not self.generates:
            return None
        return sum(c.tokens for c in self.choices.values())

    @property
    def last_token_mono_ns(self) -> int | None:
        stamps = [c.last_mono_ns for c in self.choices.values() if c.last_mono_ns is not None]
        return max(stamps, default=None)

    @property
    def finish_reason(self) -> str:
        return first_reason(self.finish_reasons)

    @property
    def reasoning_tokens(self) -> int | None:
        return None

    @property
    def provider(self) -> str:
        return "vllm"

    @property
    def span_kind(self) -> SpanKind:
        return SpanKind.INTERNAL

    @property
    def span_id(self) -> int | None:
        return None

    @property
    def superseded(self) -> bool:
        return False

    @property
    def itl_kind(self) -> str:
        """``chunk`` where an engine step gave more than one token to a choice."""
        return "chunk" if any(c.tokens > c.steps for c in self.choices.values()) else "token"

    @property
    def source_detail(self) -> str:
        """What is missing of the engine's words, where something is."""
        missing = self.queued_mono_ns is None or self.scheduled_mono_ns is None
        told = (NO_STAMPS if missing else "", BEAM_SEARCH if self.internal else "")
        return ",".join(t for t in told if t)

    def stages(self) -> CallStages:
        return stages_of(self)

    def pace(self) -> tuple[int, int]:
        span = count = 0
        for choice in self.choices.values():
            if choice.tokens > 1 and (time := choice.span_ns) is not None:
                span += time
                count += choice.tokens - 1
        return span, count

    def extra(self) -> Mapping[str, AttributeValue]:
        return {}

    def events(self) -> list[tuple[str, int]]:
        return []


def first_reason(finish_reasons: Mapping[int, str]) -> str:
    """The reason of the first choice, or the commonest where that one is unknown."""
    if 0 in finish_reasons:
        return finish_reasons[0]
    reasons = Counter(finish_reasons.values()).most_common(1)
    return reasons[0][0] if reasons else ""


@dataclass(frozen=True, slots=True)
class Undivided:
    """A wait that nobody divides into stages: its time is ``unattributed``."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class CallStages:
    """A call's stages as intervals; ``preempted_ns`` lies inside prefill and decode."""

    queue: StageInterval | None
    prefill: StageInterval | None
    decode: StageInterval | None
    preempted_ns: int
    repairs: tuple[str, ...]
    undivided: Undivided | None = None

    def intervals(self) -> list[StageInterval]:
        return [i for i in (self.queue, self.prefill, self.decode) if i is not None]


def stages_of(call: EngineCall) -> CallStages:
    """Queue, prefill and decode of a call, with an inconsistent source repaired by rule.

    Rules: a last token before the first one is taken for "never updated" and the
    call's end is used instead; any other stamp that lies before its predecessor is
    moved up to it. Each repair is named in ``repairs``. No duration is negative.
    A call that never gave a scheduling stamp has no stages: nothing is guessed.
    """
    repairs = list(call.repairs)
    queued, scheduled = call.queued_mono_ns, call.scheduled_mono_ns
    if queued is None or scheduled is None:
        return CallStages(None, None, None, 0, tuple(repairs))
    first, last = call.prefilled_mono_ns, call.last_token_mono_ns
    scheduled = _not_before(scheduled, queued, repairs)
    queue = StageInterval(Stage.QUEUE, queued, scheduled)
    if first is None:
        return CallStages(queue, None, None, 0, tuple(repairs))
    first = _not_before(first, scheduled, repairs)
    prefill = StageInterval(Stage.PREFILL, scheduled, first)
    decode = None
    if last is not None and call.output_tokens:
        if last < first:
            repairs.append(REPAIR_LAST_TOKEN)
            last = max(first, call.ended_mono_ns or first)
        decode = StageInterval(Stage.DECODE, first, last)
    return CallStages(queue, prefill, decode, _preempted(call, scheduled), tuple(repairs))


def _not_before(stamp: int, floor: int, repairs: list[str]) -> int:
    if stamp >= floor:
        return stamp
    if REPAIR_ORDER not in repairs:
        repairs.append(REPAIR_ORDER)
    return floor


def _preempted(call: EngineCall, scheduled: int) -> int:
    """Time off the engine after the first scheduling; an open preemption ends with the call."""
    total = 0
    for one in call.preemptions:
        end = one.resumed_mono_ns or call.ended_mono_ns or one.at_mono_ns
        total += max(0, end - max(one.at_mono_ns, scheduled))
    return total
