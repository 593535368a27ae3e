"""Opens and closes the records of requests; every opened one is closed exactly once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from opentelemetry import trace as otel_trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.request.live import LiveRequest
from proxy.request.prompt_marks import PromptMarks
from proxy.request.record import Arrival
from proxy.request.spans import drafts, span_count
from proxy.settings import TAG_LIMIT, TAG_NAME, TAG_TEXT, ProxySettings
from tracer.clock import Clock, Tie
from tracer.export_settings import SpanGroup
from tracer.ids import IdSource

log = logging.getLogger("stagelens.proxy")

OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
}
TAGS_HEADER = b"x-stagelens-tags"
_TAG = re.compile(rf"\s*({TAG_NAME})\s*=\s*({TAG_TEXT})\s*")


AZURE = re.compile(r"/openai/deployments/[^/]+(/chat/completions|/completions|/embeddings)")


def operation_of(path: str, method: str = "POST") -> str:
    """The GenAI operation that a request asks for; "" where it asks for none.

    Only a POST does: a browser's OPTIONS before it, or a GET of stored answers, is no model call.
    """
    if method != "POST":
        return ""
    if (known := OPERATIONS.get(path)) is not None:
        return known
    azure = AZURE.fullmatch(path)
    return OPERATIONS.get("/v1" + azure.group(1), "") if azure else ""


class SpanSink(Protocol):
    """Takes a finished request's spans; must neither block nor raise."""

    def put_spans(self, group: SpanGroup) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests running and waiting in the engine's last step; None where nobody tells."""

    running: int | None = None
    waiting: int | None = None


def at_once(work: Callable[[], None]) -> None:
    work()


class Recorder:
    """Makes a :class:`LiveRequest` of each request and one record of it at its end.

    Not thread-safe: used from the event loop only. ``load`` is asked at arrival; ``later``
    is given the making of each record; ``tie`` places requests beside what else it places.
    """

    def __init__(
        self,
        settings: ProxySettings,
        clock: Clock,
        ids: IdSource,
        sink: SpanSink,
        source: str,
        load: Callable[[], EngineLoad] = EngineLoad,
        later: Callable[[Callable[[], None]], None] = at_once,
        tie: Tie | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._sink = sink
        self._source = source
        self._load = load
        self._later = later
        self._tie = tie or Tie(clock)
        self._ready_mono_ns = clock.mono_ns()
        self._propagator = TraceContextTextMapPropagator()
        self._prompt_marks = PromptMarks()
        self._seen_one = False
        self.in_flight = 0
        self.failures = 0
        self.shutting_down = False

    def note_ready(self) -> None:
        """The engine is up: the warm-up minute counts from here."""
        self._ready_mono_ns = self._clock.mono_ns()

    def open(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], start_mono_ns: int
    ) -> LiveRequest:
        """Begin the record of a request whose first byte came at ``start_mono_ns``."""
        carrier, tags = _read_headers(headers)
        trace_id, parent, flags = self._parent(carrier)
        operation = operation_of(path, method)
        arrival = self._arrival(start_mono_ns, operation)
        self.in_flight += 1
        return LiveRequest(
            trace_id=trace_id,
            span_id=self._ids.span_id(),
            parent_span_id=parent,
            method=method,
            path=path,
            start_mono_ns=start_mono_ns,
            arrival=arrival,
            anchor=self._tie.anchor(),
            tags={**self._settings.tags, **tags},
            trace_flags=flags,
            operation=operation,
        )

    def close(self, live: LiveRequest) -> None:
        """End the request; its record is made ``later``, and a fault of it never reaches the request."""
        self.in_flight -= 1
        live.end(self._clock.mono_ns())
        self._later(lambda: self._record(live))

    def _record(self, live: LiveRequest) -> None:
        try:
            record = live.record(self._source, self._prompt_marks.of(live.prompt_seen))
            group = SpanGroup(
                record.trace_id, span_count(record), lambda: drafts(record, live.anchor, self._ids)
            )
            self._sink.put_spans(group)
        except Exception:
            self.failures += 1
            if self.failures in {1, 10, 100} or self.failures % 1000 == 0:
                log.exception("a request's record could not be made (%d so far)", self.failures)

    def _parent(self, carrier: dict[str, str]) -> tuple[int, int | None, int]:
        """The caller's trace, span and flags from W3C headers, or a new trace if they are bad."""
        if "traceparent" in carrier:
            context = self._propagator.extract(carrier)
            caller = otel_trace.get_current_span(context).get_span_context()
            if caller.is_valid:
                return caller.trace_id, caller.span_id, caller.trace_flags & 1
        return self._ids.trace_id(), None, 1

    def _arrival(self, now_mono_ns: int, operation: str) -> Arrival:
        load = self._load()
        cold = ""
        if operation and not self._seen_one:
            self._seen_one = True
            cold = "first_request"
        elif now_mono_ns - self._ready_mono_ns < self._settings.warm_after_s * 1e9:
            cold = "startup"
        return Arrival(self.in_flight, load.running, load.waiting, not cold, cold)


def _read_headers(
    headers: Iterable[tuple[bytes, bytes]],
) -> tuple[dict[str, str], dict[str, str]]:
    """Trace context and tags; no other header is looked at."""
    carrier: dict[str, str] = {}
    tags: dict[str, str] = {}
    for name, value in headers:
        if name == b"traceparent":  # W3C: more than one is as good as none
            twice = "traceparent" in carrier
            carrier["traceparent"] = "" if twice else value.decode("latin-1")
        elif name == b"tracestate":
            before = carrier.get("tracestate")
            told = value.decode("latin-1")
            carrier["tracestate"] = told if before is None else f"{before},{told}"
        elif name == TAGS_HEADER:
            for key, tag in parse_tags(value.decode("utf-8", "replace")).items():
                if key in tags or len(tags) < TAG_LIMIT:
                    tags[key] = tag
    return carrier, tags


def parse_tags(text: str) -> dict[str, str]:
    """``k=v,k2=v2``; what does not match the form is left out, and so is what exceeds the limit."""
    found: dict[str, str] = {}
    for part in text.split(",")[: TAG_LIMIT * 2]:
        match = _TAG.fullmatch(part)
        if match and len(found) < TAG_LIMIT:
            found[match.group(1)] = match.group(2).strip()
    return found
