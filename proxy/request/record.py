"""The finished record of one request, and how the marks become it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from proxy.request.call import CallStages
from proxy.request.model_call import ModelCall
from proxy.request.work import StageRun
from proxy.upstream.usage import Usage
from tracer.stages import Partition, Stage, StageInterval, partition


class RequestStatus(StrEnum):
    """How a request ended; every request ends in exactly one of these."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a request met: others in the proxy, and the engine's load in its last step."""

    in_flight: int
    running: int | None = None
    waiting: int | None = None
    warm: bool | None = None
    cold_reason: str = ""


@dataclass(frozen=True, slots=True)
class Marks:
    """What was seen of a request, in nanoseconds of the monotonic clock.

    ``answer_mono_ns`` is when the first body byte of a response without a model
    call was ready to go; ``calls`` are its model calls in the order they were made and
    ``runs`` the retrievals and tool calls that the proxy made for it.
    """

    start_mono_ns: int
    end_mono_ns: int
    arrival: Arrival
    calls: tuple[ModelCall, ...]
    stream: bool
    response_mono_ns: int | None = None
    first_chunk_mono_ns: int | None = None
    first_token_mono_ns: int | None = None
    first_answer_mono_ns: int | None = None
    runs: tuple[StageRun, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One finished request: who, what, and where each of its nanoseconds went."""

    trace_id: int
    span_id: int
    parent_span_id: int | None
    method: str
    route: str
    operation: str
    model: str
    http_status: int
    status: RequestStatus
    error_type: str
    tags: Mapping[str, str]
    source: str
    marks: Marks
    stages: tuple[tuple[ModelCall, CallStages], ...]
    prompts: tuple[StageInterval, ...]
    deliver: StageInterval | None
    partition: Partition
    repairs: tuple[str, ...]
    source_detail: str = ""
    done_seen: bool | None = None
    told_usage: Usage | None = None
    told_choices: int = 0
    prompt_marks: str = ""

    @property
    def e2e_ns(self) -> int:
        return self.marks.end_mono_ns - self.marks.start_mono_ns

    @property
    def handoff_ns(self) -> int | None:
        """Inside ``prompt``: from the (first) model call made to the engine having it."""
        for call in self.marks.calls:
            if call.queued_mono_ns is not None:
                return max(0, call.queued_mono_ns - call.handed_mono_ns)
        return None

    @property
    def preempted_ns(self) -> int:
        return sum(stages.preempted_ns for _, stages in self.stages)

    @property
    def tpot_ns(self) -> float | None:
        """Mean time per output token after the first; None with fewer than two tokens.

        (last token - first token) / (output tokens - 1); over several choices, the
        sum of the spans over the sum of the counts.
        """
        paces = [call.pace() for call in self.calls]
        count = sum(n for _, n in paces)
        return sum(span for span, _ in paces) / count if count else None

    @property
    def calls(self) -> list[ModelCall]:
        """The calls whose figures are the request's: attempts that failed over are not."""
        return [call for call in self.marks.calls if not call.superseded]

    @property
    def itl_ns(self) -> list[int]:
        return [g for call in self.calls for c in call.choices.values() for g in c.gaps_ns]

    @property
    def itl_kind(self) -> str:
        """``chunk`` where some chunk or engine step gave more than one token to a choice."""
        return "chunk" if any(call.itl_kind == "chunk" for call in self.calls) else "token"


def partition_of(marks: Marks) -> tuple[
    Partition,
    tuple[tuple[ModelCall, CallStages], ...],
    tuple[StageInterval, ...],
    StageInterval | None,
]:
    """The exclusive stage times of a request, with each call's stages, prompt and deliver.

    ``prompt`` runs from the first byte until the engine has the first call (until
    the response began, where no call was made). ``deliver`` runs from the last
    token, or from the start of a response that needed no model, to the last byte.
    Where the proxy ran retrievals or tools, ``prompt`` is what lies around them, and
    runs once more before each further call.
    A call that did not finish leaves the time after its last token unattributed.
    """
    start, end = marks.start_mono_ns, marks.end_mono_ns
    stages = tuple((call, call.stages()) for call in marks.calls)
    prompts = prompts_of(marks, stages) if marks.runs else (_prompt(marks),)
    deliver = _deliver(marks, stages)
    intervals = [i for _, s in stages for i in s.intervals()]
    intervals += [run.interval() for run in marks.runs]
    intervals += [*prompts, *([deliver] if deliver is not None else [])]
    return partition(start, end, intervals), stages, prompts, deliver


def _prompt(marks: Marks) -> StageInterval:
    start, end = marks.start_mono_ns, marks.end_mono_ns
    if not marks.calls:
        until = marks.response_mono_ns if marks.response_mono_ns is not None else end
    else:
        queued = [c.queued_mono_ns for c in marks.calls if c.queued_mono_ns is not None]
        until = min(queued) if queued else min(c.handed_mono_ns for c in marks.calls)
    return StageInterval(Stage.PROMPT, start, max(start, min(until, end)))


def prompts_of(
    marks: Marks, stages: tuple[tuple[ModelCall, CallStages], ...]
) -> tuple[StageInterval, ...]:
    """The prompt's pieces in a request with retrievals or tools, in time order.

    Before the first call: all that no run covers. Before a later call: from the last
    thing that ended (a call's last token or a run) to the hand-over; what lies between
    a last token and a tool's start is the answer's end and nobody's stage. Attempts that
    follow a failed one belong to the hand-over of the first.
    """
    runs = sorted((r.interval() for r in marks.runs), key=lambda i: i.start_ns)
    at, pieces, follows = marks.start_mono_ns, [], False
    for call, divided in stages:
        until = max(call.handed_mono_ns, call.queued_mono_ns or 0)
        if at == marks.start_mono_ns:
            pieces += _around(runs, at, until)
        elif not follows:
            pieces.append((max([at, *(r.end_ns for r in runs if r.end_ns <= until)]), until))
        follows = call.superseded
        ends = [i.end_ns for i in divided.intervals()]
        ends += [divided.undivided.end_ns] if divided.undivided is not None else []
        at = max([at, until, *ends])
    if not stages:
        pieces += _around(runs, at, marks.response_mono_ns or marks.end_mono_ns)
    end = marks.end_mono_ns
    return tuple(
        StageInterval(Stage.PROMPT, a, min(b, end)) for a, b in pieces if a < min(b, end)
    )


def _around(runs: list[StageInterval], start: int, end: int) -> list[tuple[int, int]]:
    """``[start, end]`` without what ``runs`` (by start) cover."""
    left, at = [], start
    for run in runs:
        if run.end_ns <= at or run.start_ns >= end:
            continue
        if run.start_ns > at:
            left.append((at, run.start_ns))
        at = run.end_ns
    if at < end:
        left.append((at, end))
    return left


def _deliver(
    marks: Marks, stages: tuple[tuple[ModelCall, CallStages], ...]
) -> StageInterval | None:
    end = marks.end_mono_ns
    if not marks.calls:
        begun = marks.response_mono_ns
        return None if begun is None else StageInterval(Stage.DELIVER, min(begun, end), end)
    if not all(call.finished for call in marks.calls if not call.superseded):
        return None
    ends = [i.end_ns for _, s in stages for i in s.intervals()]
    ends += [s.undivided.end_ns for _, s in stages if s.undivided is not None]
    ends += [run.interval().end_ns for run in marks.runs]
    if not ends:
        return None
    return StageInterval(Stage.DELIVER, min(max(ends), end), end)
