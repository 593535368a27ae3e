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
from typing import Any, Protocol

from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.util.re import parse_env_headers

from tracer import semconv
from tracer.clock import Anchor, Clock, SystemClock
from tracer.export import SCOPE, ExportSettings, OtlpExporter
from tracer.ids import RandomIds

log = logging.getLogger("stagelens.sdk")
DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
CAPTURE_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The GenAI conventions' own switch: ``SPAN_ONLY`` or ``SPAN_AND_EVENT`` capture content."""
Redact = Callable[[str, str], str]
"""Given an attribute's name and text, the text to record instead."""


class Late(Protocol):
    """Takes a span's attributes beside the span, to be joined when it is sent."""

    def is_alone(self) -> bool:
        """Whether nobody else looks at the spans or samples them by their attributes."""
        ...

    def keep(
        self, span_id: int, told: dict[str, Any], record: Callable[[], dict[str, Any]] | None
    ) -> None:
        """Keep them until the span of this id ends; ``record`` is called by the sending thread."""
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


def _place() -> str:
    import sys

    kind, _, at = sys.exc_info()
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" in {at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
    return f"{kind.__name__ if kind else 'fault'}{where}"


_active: Runtime | None = None
_last_exporter: OtlpExporter | None = None
_forks = 0


def active() -> Runtime | None:
    """What :func:`configure` set up; None where nothing is recorded."""
    return _active


def forks() -> int:
    """How many forks lie between this process and the one that imported the SDK."""
    return _forks


def configure(
    service_name: str | None = None,
    endpoint: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    instrument: Sequence[str] = (),
    capture_content: bool | None = None,
    redact: Redact | None = None,
    content_limit: int = 8192,
    queue_items: int = 8192,
    flush_s: float = 5.0,
    flush_on_sigterm: bool = False,
    clock: Clock | None = None,
) -> None:
    """Record decorated calls and send them to an OTLP/HTTP ``endpoint``.

    Joins an OpenTelemetry SDK that is already set up: its provider makes the spans, and
    it only gets one more processor. ``OTEL_SDK_DISABLED``, ``OTEL_SERVICE_NAME``,
    ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``
    and the sampler's variables are honoured where the argument was left out. ``headers`` go
    with each body, such as a collector's token. ``instrument``: packages whose
    installed OpenTelemetry or OpenInference instrumentations are turned on.
    ``capture_content``: record prompts, arguments and results (off unless the standard
    switch says otherwise); ``content_limit`` is in characters. ``flush_s``: how long the
    program's exit may wait. ``flush_on_sigterm``: send what waits when SIGTERM would end
    the program at once. Called again it replaces what it set up before.

    Raises:
        ValueError: ``endpoint`` is no http(s) URL, or an instrumentation is not installed.
    """
    global _active
    from tracer.sdk import instruments, leaving
    from tracer.sdk.processor import ExportProcessor

    shutdown()
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    url = (endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"endpoint {url!r} is not a URL: give http://HOST:PORT or https://HOST:PORT")
    wanted = instruments.find(instrument)
    given = {
        "service_name": service_name, "endpoint": url, "instrument": tuple(instrument),
        "headers": headers,
        "capture_content": _captures(capture_content), "content_limit": content_limit,
        "queue_items": queue_items, "flush_s": flush_s,
    }  # fmt: skip
    at = clock or SystemClock()
    provider, resource = _provider(service_name)
    settings = ExportSettings(url, queue_items=queue_items, headers=_headers(headers))
    exporter = OtlpExporter(settings, resource, at)
    exporter.start()
    runtime = Runtime(
        _tracer(provider), at, Anchor.take(at), given["capture_content"] is True, redact,
        content_limit, exporter, flush_s, given=given, resource=resource,
        instance_is_ours=_OUR_INSTANCES.get("id") == resource.attributes.get(semconv.SERVICE_INSTANCE_ID),
    )  # fmt: skip
    processor = ExportProcessor(exporter, runtime, provider)
    runtime.late = processor
    runtime.owned.append(processor)
    provider.add_span_processor(processor)
    _active = runtime
    runtime.undo += instruments.turn_on(wanted, provider, hide=not runtime.capture_content)
    leaving.prepare(flush_on_sigterm)


class SpanIds(IdGenerator):
    """The SDK's own ids come from the module ``random``, which programs seed."""

    def __init__(self) -> None:
        self._ids = RandomIds()

    def generate_span_id(self) -> int:
        return self._ids.span_id()

    def generate_trace_id(self) -> int:
        return self._ids.trace_id()


_own_provider: TracerProvider | None = None
_OUR_INSTANCES: dict[str, str] = {}


def _provider(service_name: str | None) -> tuple[TracerProvider, Resource]:
    """The provider that is set up, or one of ours; and the resource that we send."""
    global _own_provider
    found = otel.get_tracer_provider()
    if isinstance(found, TracerProvider) and found is not _own_provider:
        return found, found.resource.merge(_resource_of(found.resource, service_name))
    resource = Resource.create({semconv.SERVICE_NAME: service_name} if service_name else {})
    resource = resource.merge(_resource_of(resource, None))
    if _own_provider is None:
        _own_provider = TracerProvider(resource=resource, id_generator=SpanIds())
        if isinstance(found, otel.ProxyTracerProvider):  # else it is another's, and stays
            otel.set_tracer_provider(_own_provider)
    return _own_provider, resource


def _resource_of(known: Resource, service_name: str | None) -> Resource:
    """What ``known`` lacks: the name that was asked for, and an id of this process."""
    added: dict[str, Any] = {}
    if service_name:
        added[semconv.SERVICE_NAME] = service_name
    if not known.attributes.get(semconv.SERVICE_INSTANCE_ID):
        added[semconv.SERVICE_INSTANCE_ID] = _OUR_INSTANCES["id"] = uuid.uuid4().hex
    return Resource(added)


def _tracer(provider: TracerProvider) -> otel.Tracer:
    """The provider's tracer; of one that was joined, without the ids that seeding repeats."""
    made = provider.get_tracer(SCOPE)
    if type(getattr(made, "id_generator", None)) is RandomIdGenerator:
        made.id_generator = SpanIds()  # type: ignore[attr-defined]
    return made


def install(runtime: Runtime | None) -> Runtime | None:
    """Put ``runtime`` in place of the active one, which is returned; for tests."""
    global _active
    before, _active = _active, runtime
    return before


def flush(timeout_s: float = 5.0) -> bool:
    """Send what waits; ``False`` if the time was up before all of it was sent or lost."""
    exporter = _active.exporter if _active is not None else None
    return exporter is None or exporter.flush(timeout_s)


def shutdown() -> bool:
    """Send what waits within the deadline and record nothing more; ``True`` if nothing was lost."""
    global _active, _last_exporter
    runtime, _active = _active, None
    if runtime is None or runtime.exporter is None:
        return True
    for undo in runtime.undo:
        undo()
    for processor in runtime.owned:
        processor.shutdown()
    _last_exporter = runtime.exporter
    return runtime.exporter.close(runtime.flush_s)


def losses() -> Mapping[str, Mapping[str, object]]:
    """Spans received, sent, in flight and dropped by reason since :func:`configure`.

    After :func:`shutdown`: the final counts.
    """
    exporter = _active.exporter if _active is not None else _last_exporter
    return exporter.losses() if exporter is not None else {}


def _headers(told: Mapping[str, str] | None) -> Mapping[str, str]:
    if told is not None:
        return dict(told)
    return parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), liberal=True)


def _captures(told: bool | None) -> bool:
    if told is not None:
        return told
    return os.environ.get(CAPTURE_SWITCH, "").strip().upper() in {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"}


def _after_fork() -> None:
    """A forked worker is a process of its own, and must not send its parent's spans again."""
    global _forks
    _forks += 1
    if _active is None or _active.exporter is None:
        return
    resource = _active.resource
    if _active.instance_is_ours:
        resource = resource.merge(Resource({semconv.SERVICE_INSTANCE_ID: uuid.uuid4().hex}))
    _active.exporter.restart_after_fork(resource)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown)
