"""One attempt at an upstream: its marks, and the stages they and the server's words make.

::

    handed      head                first token         last token   end
    |--connect--|--------- wait ----|------ decode -----|-- deliver -|
                     | queue | prefill |   where the server told them

A server's own durations have no place on our clock, so they are placed by one rule:
back to back, ending at the first token as it reached us (streamed), or at the answer's
last byte (whole). What lies before them stays ``unattributed``, and so does the whole
wait where the server told nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from opentelemetry.trace import SpanKind

from proxy.request.call import CallStages, ChoiceMarks, Preemption, Undivided, first_reason
from proxy.upstream.dialects import Answer
from tracer import semconv
from tracer.spans import AttributeValue
from tracer.stages import Stage, StageInterval

REPAIR_TOO_LONG = "upstream_times_exceed_the_call:cut"
WAIT_FIRST_TOKEN = "time-to-first-token"  # noqa: S105
WAIT_RESPONSE = "time-to-response"


@dataclass(slots=True)
class ConnectionMarks:
    """How the attempt came by its connection, in nanoseconds; None where it did not happen."""

    reused: bool | None = None
    began_mono_ns: int | None = None
    dns_ns: int | None = None
    connected_mono_ns: int | None = None
    tcp_done_mono_ns: int | None = None
    tls: bool = False

    def attributes(self) -> Iterator[tuple[str, AttributeValue]]:
        if self.reused is not None:
            yield semconv.CONNECTION_REUSED, self.reused
        if self.dns_ns is not None:
            yield semconv.DNS_NS, self.dns_ns
        began, done, tcp = self.began_mono_ns, self.connected_mono_ns, self.tcp_done_mono_ns
        if began is None or done is None:
            return
        tcp_end = tcp if tcp is not None and self.tls else done
        yield semconv.CONNECT_NS, max(0, tcp_end - began - (self.dns_ns or 0))
        if self.tls and tcp is not None:
            yield semconv.TLS_NS, max(0, done - tcp)


@dataclass(slots=True)
class UpstreamCall:
    """Marks of one attempt, in nanoseconds of the host's monotonic clock.

    ``answered_mono_ns``: the response's head; ``read_mono_ns``: its last byte;
    ``choices`` count token-bearing chunks, ``tokens`` of them are chunks, not tokens.
    """

    operation: str
    handed_mono_ns: int
    span_id: int | None
    attempt: int = 1
    upstream: str = ""
    address: str = ""
    port: int = 0
    provider: str = "openai"
    model: str = ""
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    queued_mono_ns: int | None = None
    answered_mono_ns: int | None = None
    read_mono_ns: int | None = None
    ended_mono_ns: int | None = None
    http_status: int = 0
    finished: bool = False
    superseded: bool = False
    internal: bool = False
    cut_off: bool = False
    error_type: str | None = None
    trouble: str = ""
    cancel: Callable[[], object] | None = None
    connection: ConnectionMarks = field(default_factory=ConnectionMarks)
    answer: Answer = field(default_factory=Answer)
    choices: dict[int, ChoiceMarks] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)

    def seal(self, mono_ns: int) -> None:
        """A call that still runs when its request ends, ends with it."""
        if self.ended_mono_ns is None:
            self.ended_mono_ns = mono_ns
            self.cut_off = True

    @property
    def request_id(self) -> str:
        return self.answer.response_id

    @property
    def input_tokens(self) -> int | None:
        told = self.answer.usage.input_tokens
        times = self.answer.times
        if told is None and times.cached is not None and times.evaluated is not None:
            return times.cached + times.evaluated
        return told

    @property
    def cached_tokens(self) -> int | None:
        told = self.answer.usage.cached
        return self.answer.times.cached if told is None else told

    @property
    def output_tokens(self) -> int | None:
        told = self.answer.usage.output
        return self.answer.times.predicted if told is None else told

    @property
    def reasoning_tokens(self) -> int | None:
        return self.answer.usage.reasoning

    @property
    def finish_reason(self) -> str:
        return first_reason(self.finish_reasons)

    @property
    def span_kind(self) -> SpanKind:
        return SpanKind.CLIENT

    @property
    def itl_kind(self) -> str:
        return "chunk"

    @property
    def first_token_mono_ns(self) -> int | None:
        return min(
            (c.first_mono_ns for c in self.choices.values() if c.first_mono_ns is not None),
            default=None,
        )

    @property
    def last_token_mono_ns(self) -> int | None:
        return max(
            (c.last_mono_ns for c in self.choices.values() if c.last_mono_ns is not None),
            default=None,
        )

    def pace(self) -> tuple[int, int]:
        """Token chunks over the server's count of tokens; no pace where it gave no count.

        Nor where all came in one chunk: that has no last token apart from its first.
        """
        if all(choice.steps < 2 for choice in self.choices.values()):
            return 0, 0
        output = self.output_tokens
        spans = [c.span_ns for c in self.choices.values() if c.span_ns is not None]
        if output is None or not spans or output <= len(spans):
            return 0, 0
        return sum(spans), output - len(spans)

    def stages(self) -> CallStages:
        first, last = self.first_token_mono_ns, self.last_token_mono_ns
        if first is not None and last is not None:
            decode = StageInterval(Stage.DECODE, first, last)
            return self._before(first, decode, WAIT_FIRST_TOKEN, [])
        until = self.read_mono_ns or self.ended_mono_ns or self.handed_mono_ns
        until = max(until, self.handed_mono_ns)
        repairs: list[str] = []
        told = None if self.stream else self.answer.times.decode_ns
        made = _ending_at(Stage.DECODE, until, told, self.handed_mono_ns, repairs)
        wait = WAIT_FIRST_TOKEN if self.stream else WAIT_RESPONSE
        return self._before(until if made is None else made.start_ns, made, wait, repairs)

    def _before(
        self, until: int, decode: StageInterval | None, wait: str, repairs: list[str]
    ) -> CallStages:
        """Queue and prefill back to back before ``until``, or one wait nobody divides."""
        times = self.answer.times
        floor = min(self.handed_mono_ns, until)
        if times.prefill_ns is None and times.queue_ns is None:
            return CallStages(None, None, decode, 0, tuple(repairs), Undivided(wait, floor, until))
        prefill = _ending_at(Stage.PREFILL, until, times.prefill_ns, floor, repairs)
        before = until if prefill is None else prefill.start_ns
        queue = _ending_at(Stage.QUEUE, before, times.queue_ns, floor, repairs)
        return CallStages(queue, prefill, decode, 0, tuple(dict.fromkeys(repairs)))

    def extra(self) -> Mapping[str, AttributeValue]:
        return dict(self._extra())

    def _extra(self) -> Iterator[tuple[str, AttributeValue]]:
        yield semconv.ATTEMPT, self.attempt
        if self.upstream:
            yield semconv.UPSTREAM, self.upstream
        if self.address:
            yield semconv.SERVER_ADDRESS, self.address
            yield semconv.SERVER_PORT, self.port
        if self.http_status:
            yield semconv.HTTP_RESPONSE_STATUS_CODE, self.http_status
        if self.answer.model:
            yield semconv.GEN_AI_RESPONSE_MODEL, self.answer.model
        if self.answered_mono_ns is not None:
            yield semconv.FIRST_BYTE_NS, max(0, self.answered_mono_ns - self.handed_mono_ns)
        if self.trouble:
            yield semconv.TAP_TROUBLE, self.trouble
        yield from self.connection.attributes()
        yield from self._told()

    def _told(self) -> Iterator[tuple[str, AttributeValue]]:
        times = self.answer.times
        if times.processing_ns is not None:
            yield semconv.UPSTREAM_PROCESSING_NS, times.processing_ns
        if (rate := times.prefill_rate) is not None:
            yield semconv.PREFILL_RATE, rate
        if (mean := times.decode_ms_per_token) is not None:
            yield semconv.DECODE_MS_PER_TOKEN, mean
        if len(self.choices) > 1:
            firsts = [self.choices[i].first_mono_ns for i in sorted(self.choices)]
            since = [f - self.handed_mono_ns for f in firsts if f is not None]
            yield semconv.CHOICE_FIRST_TOKEN_NS, ",".join(map(str, since))

    def events(self) -> list[tuple[str, int]]:
        marks = (
            ("connected", self.connection.connected_mono_ns),
            ("response_headers", self.answered_mono_ns),
        )
        return [(name, at) for name, at in marks if at is not None]

    @property
    def source_detail(self) -> str:
        """Which words of the upstream this call's figures rest on."""
        usage = self.answer.usage
        told = ("usage",) if usage.input is not None or usage.output is not None else ()
        return ",".join((*told, *self.answer.times.said_by))


def _ending_at(
    stage: Stage, end: int, duration: int | None, floor: int, repairs: list[str]
) -> StageInterval | None:
    """``duration`` before ``end``, cut at ``floor`` (which is flagged); None for None."""
    if duration is None:
        return None
    if end - duration < floor:
        repairs.append(REPAIR_TOO_LONG)
    return StageInterval(stage, max(end - duration, floor), end)
