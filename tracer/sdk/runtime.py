"""One-call set-up, and what the decorators find when it was called.

An SDK is reached from any line of a program, so there is one module-level handle; it is
``None`` until :func:`configure`, and then a decorated call costs one look at it.
"""

from __future__ import annotations

import atexit
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from tracer import semconv
from tracer.clock import Anchor, Clock, SystemClock
from tracer.export import SCOPE, ExportSettings, OtlpExporter, SpanGroup
from tracer.spans import SpanDraft

log = logging.getLogger("stagelens.sdk")
DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
CAPTURE_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The GenAI conventions' own switch: ``SPAN_ONLY`` or ``SPAN_AND_EVENT`` capture content."""
Redact = Callable[[str, str], str]
"""Given an attribute's name and text, the text to record instead."""


@dataclass(slots=True)
class Runtime:
    """What a configured SDK works with. ``failures`` counts faults of its own."""

    tracer: otel.Tracer
    clock: Clock
    anchor: Anchor
    capture_content: bool
    redact: Redact | None
    content_limit: int
    exporter: OtlpExporter | None
    flush_s: float
    failures: int = 0
    raise_faults: bool = False
    owned: list[SpanProcessor] = field(default_factory=list)

    def fault(self) -> None:
        """A fault of ours: counted, told at a limited rate, and never the application's."""
        if self.raise_faults:
            raise  # noqa: PLE0704  called while one is handled
        self.failures += 1
        if self.failures in {1, 10, 100} or self.failures % 1000 == 0:
            log.warning("a span could not be recorded (%d so far)", self.failures, exc_info=True)


_active: Runtime | None = None


def active() -> Runtime | None:
    """What :func:`configure` set up; None where nothing is recorded."""
    return _active


def configure(
    service_name: str | None = None,
    endpoint: str | None = None,
    *,
    capture_content: bool | None = None,
    redact: Redact | None = None,
    content_limit: int = 8192,
    queue_items: int = 8192,
    flush_s: float = 5.0,
    clock: Clock | None = None,
) -> None:
    """Record decorated calls and send them to an OTLP/HTTP ``endpoint``.

    Joins an OpenTelemetry SDK that is already set up: its provider makes the spans, and
    it only gets one more processor. ``OTEL_SDK_DISABLED``, ``OTEL_SERVICE_NAME``,
    ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_EXPORTER_OTLP_ENDPOINT`` and the sampler's
    variables are honoured where the argument was left out. ``capture_content``: record
    prompts, arguments and results (off unless the standard switch says otherwise);
    ``content_limit`` is in characters. ``flush_s``: how long the program's exit may wait.
    Called again it replaces what it set up before.

    Raises:
        ValueError: ``endpoint`` is no http(s) URL.
    """
    global _active
    shutdown()
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    url = (endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"endpoint {url!r} is not a URL: give http://HOST:PORT or https://HOST:PORT")
    at = clock or SystemClock()
    provider = otel.get_tracer_provider()
    joined = isinstance(provider, TracerProvider)
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(resource=_resource(service_name))
    exporter = OtlpExporter(
        ExportSettings(url, queue_items=queue_items), provider.resource, at
    )
    exporter.start()
    processor = _Processor(exporter, flush_s)
    provider.add_span_processor(processor)
    if not joined:
        otel.set_tracer_provider(provider)
    _active = Runtime(
        provider.get_tracer(SCOPE), at, Anchor.take(at), _captures(capture_content), redact,
        content_limit, exporter, flush_s, owned=[processor],
    )  # fmt: skip


def install(runtime: Runtime | None) -> Runtime | None:
    """Put ``runtime`` in place of the active one, which is returned; for tests."""
    global _active
    before, _active = _active, runtime
    return before


def shutdown() -> bool:
    """Send what waits within the deadline and record nothing more; ``True`` if nothing was lost."""
    global _active
    runtime, _active = _active, None
    if runtime is None or runtime.exporter is None:
        return True
    for processor in runtime.owned:
        processor.shutdown()
    return runtime.exporter.close(runtime.flush_s)


def losses() -> Mapping[str, Mapping[str, object]]:
    """Spans received, sent, in flight and dropped by reason since :func:`configure`."""
    exporter = _active.exporter if _active is not None else None
    return exporter.losses() if exporter is not None else {}


def _captures(told: bool | None) -> bool:
    if told is not None:
        return told
    return os.environ.get(CAPTURE_SWITCH, "").strip().upper() in {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"}


def _resource(service_name: str | None) -> Resource:
    given: dict[str, Any] = {semconv.SERVICE_INSTANCE_ID: uuid.uuid4().hex}
    if service_name:
        given[semconv.SERVICE_NAME] = service_name
    return Resource.create(given)


class _Processor(SpanProcessor):
    """Ended spans to the exporter, which never blocks; unsampled ones are not sent."""

    def __init__(self, exporter: OtlpExporter, flush_s: float) -> None:
        self._exporter = exporter
        self._flush_s = flush_s
        self._over = False

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if self._over or context is None or not context.trace_flags.sampled:
            return
        self._exporter.put_spans(SpanGroup(context.trace_id, 1, lambda: [_draft(span)]))

    def shutdown(self) -> None:
        self._over = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.flush(min(timeout_millis / 1e3, self._flush_s))


def _draft(span: ReadableSpan) -> SpanDraft:
    context = span.context
    assert context is not None
    parent = span.parent
    events: Sequence[Any] = span.events
    start, end = span.start_time or 0, span.end_time or 0
    return SpanDraft(
        name=span.name,
        span_id=context.span_id,
        parent_id=None if parent is None else parent.span_id,
        start_unix_ns=start,
        end_unix_ns=max(start, end),
        kind=span.kind,
        attributes=dict(span.attributes or {}),  # type: ignore[arg-type]
        events=[(e.name, e.timestamp, dict(e.attributes or {})) for e in events],
        error=span.status.status_code is otel.StatusCode.ERROR,
        remote_parent=parent is not None and parent.is_remote,
    )


def _after_fork() -> None:
    """A forked worker has no sending thread and must not send its parent's spans again."""
    if _active is not None and _active.exporter is not None:
        _active.exporter.restart_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown)
