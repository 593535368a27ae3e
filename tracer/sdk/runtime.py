"""One-call set-up, and what the decorators find when it was called.

An SDK is reached from any line of a program, so there is one module-level handle; it is
``None`` until :func:`configure`, and then a decorated call costs one look at it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from tracer import semconv
from tracer.clock import Anchor, Clock, SystemClock
from tracer.export import OtlpExporter
from tracer.export_settings import ExportSettings
from tracer.sdk.attributes import When
from tracer.sdk.starts import Starts

log = logging.getLogger("stagelens.sdk")
CAPTURE_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The GenAI conventions' own switch: ``SPAN_ONLY`` or ``SPAN_AND_EVENT`` capture content."""
STEP_NS = 1_000_000
Redact = Callable[[str, str], str]
"""Given an attribute's name and text, the text to record instead."""


class Late(Protocol):
    """Takes a span's attributes beside the span, to be joined when it is sent.

    ``starts`` begins spans where others look at the attributes at that time.
    """

    starts: Starts | None

    def when(self) -> When:
        """When others look at a span's attributes."""
        ...

    def keep(
        self, span_id: int, begun: Mapping[str, Any], told: dict[str, Any],
        record: Callable[[], dict[str, Any]] | None,
    ) -> None:  # fmt: skip
        """Keep them until the span of this id ends; ``record`` is called by the sending thread.

        ``begun`` was known when the span began: the span's own attributes go over it.
        """
        ...


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
    undo: list[Callable[[], None]] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    instance_is_ours: bool = False
    resource: Resource = field(default_factory=Resource.get_empty)
    late: Late | None = None
    offset_ns: int = 0

    def __post_init__(self) -> None:
        self.offset_ns = self.anchor.offset_ns

    def place(self, mono_ns: int) -> None:
        """Tie the clocks anew where the wall clock has left the anchor: a host that slept, a step.

        ``mono_ns`` is now. Only for spans that begin from here on; a span's own length stays.
        """
        drift = self.clock.unix_ns() - mono_ns - self.offset_ns
        if not -STEP_NS < drift < STEP_NS:  # or the thread lost its core since mono_ns was read
            self.offset_ns = Anchor.take(self.clock).offset_ns

    def fault(self) -> None:
        """A fault of ours: counted, told at a limited rate, and never the application's.

        Called while it is handled. Its text may hold what the application works with, so
        only its kind and place are told.
        """
        if self.raise_faults:
            raise  # noqa: PLE0704  called while one is handled
        self.failures += 1
        if self.failures in {1, 10, 100} or self.failures % 1000 == 0:
            log.warning("a span could not be recorded (%d so far): %s", self.failures, _place())


    def lose(self) -> None:
        """A fault for which a span that was begun will not be sent, or none could be begun."""
        self.fault()
        if self.exporter is not None:
            self.exporter.lose_span("fault")


def _place() -> str:
    import sys

    kind, _, at = sys.exc_info()
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" in {at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
    return f"{kind.__name__ if kind else 'fault'}{where}"


_active: Runtime | None = None
_last_exporter: OtlpExporter | None = None
_setting_up = threading.RLock()
FORKS = [0]
"""How many forks lie between this process and the one that imported the SDK."""


def active() -> Runtime | None:
    """What :func:`configure` set up; None where nothing is recorded."""
    return _active


def configure(
    service_name: str | None = None,
    endpoint: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    instrument: Sequence[str] = (),
    capture_content: bool | None = None,
    redact: Redact | None = None,
    content_limit: int = 8192,
    queue_items: int | None = None,
    flush_s: float = 5.0,
    flush_on_sigterm: bool = False,
    clock: Clock | None = None,
) -> None:
    """Record decorated calls and send them to an OTLP/HTTP ``endpoint``.

    Joins an OpenTelemetry SDK that is already set up: its provider makes the spans, and
    it only gets one more processor. The standard ``OTEL_…`` variables are honoured where the
    argument was left out (docs/sdk.md has the list). ``headers`` go
    with each body, such as a collector's token. ``instrument``: packages whose
    installed OpenTelemetry or OpenInference instrumentations are turned on.
    ``capture_content``: record prompts, arguments and results (off unless the standard
    switch says otherwise); ``content_limit`` is in characters. ``queue_items``: how many spans
    may wait (8192). ``flush_s``: how long the
    program's exit may wait. ``flush_on_sigterm``: send what waits when SIGTERM would end
    the program at once. Called again it replaces what it set up before.

    Raises:
        ValueError: ``endpoint`` is no http(s) URL, an instrumentation is not installed, or an
            argument cannot be meant. Nothing is recorded then.
    """
    global _active
    from tracer.sdk import environment, instruments, leaving, providers

    _refuse_negative(content_limit=content_limit, queue_items=queue_items or 0, flush_s=flush_s)
    with _setting_up:
        shutdown()
        if environment.is_disabled():
            return
        settings = environment.export_settings(endpoint, headers, queue_items)
        wanted = instruments.find(instrument)
        given = {
            "service_name": service_name, "endpoint": endpoint, "instrument": tuple(instrument),
            "headers": None if headers is None else dict(headers),
            "capture_content": _captures(capture_content), "content_limit": content_limit,
            "redact": redact,
            "queue_items": queue_items, "flush_s": flush_s,
        }  # fmt: skip
        at = clock or SystemClock()
        ways = environment.exporters() if endpoint is None else frozenset({"otlp"})
        provider, resource = providers.provider_of(service_name)
        if not ways and providers.is_ours(provider):
            return  # nobody is there who would look
        runtime = Runtime(
            providers.tracer_of(provider), at, Anchor.take(at), given["capture_content"] is True, redact,
            content_limit, None, flush_s, given=given, resource=resource,
            instance_is_ours=providers.instance_is_ours(resource),
        )  # fmt: skip
        _send(runtime, provider, settings, ways)
        _active = runtime
        try:
            runtime.undo += instruments.turn_on(wanted, provider, hide=not runtime.capture_content)
        except BaseException:
            shutdown()
            raise
        leaving.prepare(flush_on_sigterm)


def _send(
    runtime: Runtime, provider: TracerProvider, settings: ExportSettings, ways: frozenset[str]
) -> None:
    """What becomes of ended spans: sent, shown, both, or neither (``OTEL_TRACES_EXPORTER``)."""
    from tracer.sdk.processor import ExportProcessor

    if "otlp" in ways:
        runtime.exporter = OtlpExporter(settings, runtime.resource, runtime.clock)
        runtime.exporter.start()
        runtime.late = processor = ExportProcessor(runtime.exporter, runtime, provider)
        runtime.owned.append(processor)
    if "console" in ways:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

        runtime.owned.append(BatchSpanProcessor(ConsoleSpanExporter()))
    for one in runtime.owned:
        provider.add_span_processor(one)


def _refuse_negative(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number >= 0:
            raise ValueError(f"{name} is {number!r}: give a number of at least 0")


def install(runtime: Runtime | None) -> Runtime | None:
    """Put ``runtime`` in place of the active one, which is returned; for tests."""
    global _active
    before, _active = _active, runtime
    return before


def flush(timeout_s: float = 5.0) -> bool:
    """Send what waits; ``False`` if the time was up before all of it was sent or lost."""
    owned = _active.owned if _active is not None else []
    flushed = [one.force_flush(int(min(timeout_s, 1e6) * 1e3)) for one in owned]
    return all(flushed)


def shutdown() -> bool:
    """Send what waits within the deadline and record nothing more; ``True`` if nothing was lost."""
    global _active, _last_exporter
    runtime, _active = _active, None
    if runtime is None:
        return True
    for undo in runtime.undo:
        undo()
    for processor in runtime.owned:
        processor.shutdown()
    if runtime.exporter is None:
        return True
    _last_exporter = runtime.exporter
    return runtime.exporter.close(runtime.flush_s)


def losses() -> Mapping[str, Mapping[str, object]]:
    """Spans received, sent, in flight and dropped by reason since :func:`configure`.

    After :func:`shutdown`: the final counts.
    """
    exporter = _active.exporter if _active is not None else _last_exporter
    return exporter.losses() if exporter is not None else {}


def _captures(told: bool | None) -> bool:
    if told is not None:
        return told
    return os.environ.get(CAPTURE_SWITCH, "").strip().upper() in {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"}


def _after_fork() -> None:
    """A forked worker is a process of its own, and must not send its parent's spans again."""
    global _setting_up
    FORKS[0] += 1
    _setting_up = threading.RLock()
    if _active is None or _active.exporter is None:
        return
    resource = _active.resource
    if _active.instance_is_ours:
        resource = resource.merge(Resource({semconv.SERVICE_INSTANCE_ID: uuid.uuid4().hex}))
    _active.exporter.restart_after_fork(resource)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown)
