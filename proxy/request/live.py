"""One request while it runs: the marks that the protocol, the engine and the stream leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from proxy.request.call import EngineCall
from proxy.request.model_call import ModelCall
from proxy.request.record import (
    Arrival,
    Marks,
    RequestRecord,
    RequestStatus,
    partition_of,
)
from proxy.request.work import StageRun
from proxy.stream.clocks import Clocks, StreamClocks
from proxy.upstream.dialects import Answer, read_event
from proxy.upstream.usage import Usage
from tracer.clock import Anchor

WHOLE_LIMIT = 4 * 1024 * 1024
"""A whole answer that is longer is not read."""
_CALLS_TOOLS = re.compile(rb'"(?:finish|stop)_reason" ?: ?"tool')


@dataclass(slots=True)
class LiveRequest:
    """Filled while a request runs; :meth:`end` closes it, :meth:`record` makes its one record."""

    trace_id: int
    span_id: int
    parent_span_id: int | None
    method: str
    path: str
    start_mono_ns: int
    arrival: Arrival
    anchor: Anchor
    tags: Mapping[str, str]
    trace_flags: int = 1
    end_mono_ns: int = 0
    operation: str = ""
    model: str = ""
    route: str = ""
    stream: bool = False
    answers_itself: bool = False
    """The answer is the proxy's own, though others are passed on as they are."""
    http_status: int = 0
    response_mono_ns: int | None = None
    done_mono_ns: int | None = None
    disconnected_mono_ns: int | None = None
    error_body_type: str = ""
    error_kind: str = ""
    failure: str = ""
    cancelled_by: str = ""
    source_detail: str = ""
    done_seen: bool | None = None
    told_finish: Mapping[int, str] = field(default_factory=dict)
    told_usage: Usage | None = None
    told_choices: int = 0
    prompt: bytes = b""
    clocks: Clocks = field(default_factory=StreamClocks)
    calls: list[ModelCall] = field(default_factory=list)
    runs: list[StageRun] = field(default_factory=list)

    @property
    def tokens_so_far(self) -> int | None:
        """Tokens the engine has made for this request; None where nobody counts them."""
        return sum(c.output_tokens or 0 for c in self.calls) if self.calls else None

    def read_whole(self, body: bytes) -> None:
        """What an answer that was no stream says and the embedded engine does not.

        That it ends in tool calls, and the tokens of a search of many calls. An upstream's
        answer is read by its tap.
        """
        if not any(isinstance(call, EngineCall) for call in self.calls):
            return
        searched = any(call.internal for call in self.calls)
        if len(body) > WHOLE_LIMIT or not (searched or _CALLS_TOOLS.search(body)):
            return
        answer = Answer()
        facts = read_event(body, answer)
        self.told_finish, self.told_usage = facts.finish, answer.usage
        self.told_choices = len(facts.choices)

    def _name_ends(self) -> None:
        """The one engine call ended as the client was told: the engine knows no tool calls."""
        told = self.told_finish or self.clocks.finish
        if told and len(self.calls) == 1 and isinstance(call := self.calls[0], EngineCall):
            call.finish_reasons.update(told)

    def cancel_calls(self) -> None:
        """Stop model calls that outlive their request: a cancelled handler may leave them behind."""
        for call in self.calls:
            if (call.ended_mono_ns is None or call.cut_off) and call.cancel is not None:
                call.cancel()

    def end(self, mono_ns: int) -> None:
        """The request is over: what its calls and runs still do is no part of it. Call it once."""
        self.end_mono_ns = max(self.done_mono_ns or mono_ns, self.start_mono_ns)
        for call in self.calls:
            call.seal(self.end_mono_ns)
        for run in self.runs:
            run.seal(self.end_mono_ns)

    @property
    def prompt_seen(self) -> bytes | Sequence[int]:
        """The engine's token ids of the first call, else what was seen of the text."""
        first = next(iter(self.calls), None)
        return (first.prompt if isinstance(first, EngineCall) else ()) or self.prompt

    def record(self, source: str, prompt_marks: str = "") -> RequestRecord:
        """The record of this request, which has ended."""
        status, error_type = self._outcome()
        self._name_ends()
        marks = Marks(
            start_mono_ns=self.start_mono_ns,
            end_mono_ns=self.end_mono_ns,
            arrival=self.arrival,
            calls=tuple(self.calls),
            runs=tuple(self.runs),
            stream=self.stream,
            response_mono_ns=self.response_mono_ns,
            first_chunk_mono_ns=self.clocks.first_chunk_mono_ns if self.stream else None,
            first_token_mono_ns=self.clocks.first_token_mono_ns,
            first_answer_mono_ns=self.clocks.first_answer_mono_ns,
        )
        divided, stages, prompts, deliver = partition_of(marks)
        repairs = dict.fromkeys(r for _, s in stages for r in s.repairs)
        return RequestRecord(
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            method=self.method,
            route=self.route,
            operation=self.operation,
            model=self.model or next((c.model for c in self.calls if c.model), ""),
            http_status=self.http_status,
            status=status,
            error_type=error_type,
            tags=self.tags,
            source=source,
            marks=marks,
            stages=stages,
            prompts=prompts,
            deliver=deliver,
            partition=divided,
            repairs=tuple(repairs),
            source_detail=self.source_detail or _details(c for c in self.calls if not c.superseded),
            done_seen=self.done_seen,
            told_usage=self.told_usage,
            told_choices=self.told_choices,
            prompt_marks=prompt_marks,
        )

    def _outcome(self) -> tuple[RequestStatus, str]:
        """Status and error type; a client that left outranks what its leaving caused."""
        if self.failure:
            return RequestStatus.ERROR, self.failure
        if self.cancelled_by:
            return RequestStatus.CANCELLED, self.cancelled_by
        if self.disconnected_mono_ns is not None and self.done_mono_ns is None:
            if self.clocks.complete:
                return RequestStatus.OK, ""
            return RequestStatus.CANCELLED, "client_disconnect"
        if self.clocks.error is not None:
            return RequestStatus.ERROR, self.clocks.error
        if self.http_status >= 400:
            return RequestStatus.ERROR, self.error_kind or self.error_body_type or str(self.http_status)
        if self.done_mono_ns is None:
            return RequestStatus.ERROR, "response_incomplete"
        return RequestStatus.OK, ""


def _details(calls: Iterable[ModelCall]) -> str:
    told = dict.fromkeys(part for c in calls for part in c.source_detail.split(",") if part)
    return ",".join(told)


CURRENT: ContextVar[LiveRequest | None] = ContextVar("stagelens_request", default=None)
"""The request that the running task works for; set by the middleware, read by engine taps."""
