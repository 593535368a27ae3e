"""Ended spans on their way to the exporter: ours, and those of other instrumentations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider, sampling

from tracer import semconv
from tracer.export import SCOPE, OtlpExporter
from tracer.export_settings import SpanGroup
from tracer.sdk.attributes import When
from tracer.sdk.root import Task, current_task, task_of
from tracer.sdk.runtime import Runtime
from tracer.sdk.secrets import scrub_text, without_content, without_secrets
from tracer.sdk.starts import Starts, starts_of
from tracer.spans import SpanDraft
from tracer.stages import Stage

Record = Callable[[], dict[str, Any]]
Kept = tuple[Mapping[str, Any], dict[str, Any], Record | None]
_BY_ID = (sampling.StaticSampler, sampling.TraceIdRatioBased)
_OF_PARENTS = (
    "_root", "_remote_parent_sampled", "_remote_parent_not_sampled",
    "_local_parent_sampled", "_local_parent_not_sampled",
)  # fmt: skip
USUAL_ATTRIBUTES = 128
MOST_REMEMBERED = 10_000
_STAGES = {
    "execute_tool": Stage.TOOL, "retrieval": Stage.RETRIEVAL,
    "TOOL": Stage.TOOL, "RETRIEVER": Stage.RETRIEVAL, "RERANKER": Stage.RETRIEVAL,
}  # fmt: skip
"""By ``gen_ai.operation.name`` and by OpenInference's ``openinference.span.kind``."""


class ExportProcessor(SpanProcessor):
    """Hands each sampled span on, which never blocks. Nothing is sent on the caller's thread.

    Spans of other instrumentations that are retrievals or tools count in the task around
    them. Where content is off, theirs is taken out as well.
    """

    def __init__(
        self, exporter: OtlpExporter, runtime: Runtime, provider: TracerProvider | None = None
    ) -> None:
        self._exporter = exporter
        self._provider = provider
        self._all = getattr(provider, "_active_span_processor", None)
        self._kept: dict[int, Kept] = {}
        self._judged: tuple[object, When] = (None, When.BEFORE_START)
        self.starts: Starts | None = None
        self._runtime = runtime
        self._tasks: dict[int, Task] = {}
        self._over = False

    def when(self) -> When:
        """Judged anew when a processor was added; the others may be any number."""
        found = getattr(self._all, "_span_processors", None)
        if self._judged[0] is not found:
            self._judged = (found, self._judge(found))
        return self._judged[1]

    def _judge(self, found: Iterable[object] | None) -> When:
        if found is None or not _samples_by_id(getattr(self._provider, "sampler", None)):
            return When.BEFORE_START
        others = [p for p in found if p is not self and not _is_over(p)]
        if others and not all(map(_skips_starts, others)):
            self.starts = self.starts or starts_of(self._runtime.tracer, self._runtime.fault)
            return When.BEFORE_START if self.starts is None else When.AT_START
        if others:
            return When.AT_END
        return When.AT_END if _has_limits(self._provider) else When.NEVER

    def keep(
        self, span_id: int, begun: Mapping[str, Any], told: dict[str, Any], record: Record | None
    ) -> None:
        if len(self._kept) >= MOST_REMEMBERED:  # of spans that somebody else had ended
            self._kept.clear()
        self._kept[span_id] = (begun, told, record)

    def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
        scope = span.instrumentation_scope
        if scope is not None and scope.name == SCOPE:
            return
        task = current_task() if parent_context is None else task_of(parent_context)
        if task is None or span.context is None:
            return
        if len(self._tasks) >= MOST_REMEMBERED:  # of spans that nobody ended: the oldest is forgotten
            self._forget_one()
        self._tasks[span.context.span_id] = task

    def _forget_one(self) -> None:
        try:
            self._tasks.pop(next(iter(self._tasks)), None)
        except (RuntimeError, StopIteration):  # another thread is at it
            return

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is None:
            return
        scope, span_id = span.instrumentation_scope, context.span_id
        ours = scope is not None and scope.name == SCOPE
        if not ours:
            self._count(span, self._tasks.pop(span_id, None))
        kept = self._kept.pop(span_id, None)
        if not context.trace_flags.sampled:
            return
        if self._over:  # the provider was shut down, and is still used
            self._exporter.lose_span("closed")
            return
        hide = not self._runtime.capture_content
        make = partial(_drafts, span, ours, hide, kept)
        self._exporter.put_spans(SpanGroup(context.trace_id, 1, make))

    def _count(self, span: ReadableSpan, task: Task | None) -> None:
        told = span.attributes or {}
        kind = told.get(semconv.GEN_AI_OPERATION_NAME) or told.get(semconv.OPENINFERENCE_KIND)
        stage = _STAGES.get(str(kind))
        if task is None or stage is None or span.start_time is None or span.end_time is None:
            return
        offset = self._runtime.offset_ns
        task.add(stage, span.start_time - offset, span.end_time - offset)

    def shutdown(self) -> None:
        self._over = True
        self._tasks.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.flush(timeout_millis / 1e3)


def _samples_by_id(sampler: object) -> bool:
    """Whether its decision is the same whatever a span's attributes are."""
    if type(sampler) is sampling.ParentBased:
        return all(_samples_by_id(getattr(sampler, name, None)) for name in _OF_PARENTS)
    return type(sampler) in _BY_ID


def _skips_starts(processor: object) -> bool:
    """Whether it does nothing when a span starts: OpenTelemetry's own ones, and like them."""
    own = getattr(type(processor), "on_start", None)
    known = [SpanProcessor]
    export = sys.modules.get("opentelemetry.sdk.trace.export")  # is there if it is used
    if export is not None:
        known += [export.BatchSpanProcessor, export.SimpleSpanProcessor]
    return own in [one.on_start for one in known]


def _has_limits(provider: object) -> bool:
    """Whether ``OTEL_SPAN_ATTRIBUTE_…_LIMIT`` or the program says how much a span may hold."""
    limits = getattr(provider, "_span_limits", None)
    most, longest = (
        getattr(limits, name, None) for name in ("max_span_attributes", "max_span_attribute_length")
    )
    return longest is not None or (most is not None and most < USUAL_ATTRIBUTES)


def _is_over(processor: object) -> bool:
    return isinstance(processor, ExportProcessor) and processor._over  # noqa: SLF001


def _drafts(span: ReadableSpan, ours: bool, hide: bool, kept: Kept | None) -> list[SpanDraft]:
    draft = draft_of(span, ours=ours, hide=hide)
    if kept is None:
        return [draft]
    begun, told, record = kept
    made = record() if record is not None else {}
    return [replace(draft, attributes={**begun, **draft.attributes, **told, **made})]


def draft_of(span: ReadableSpan, *, ours: bool = True, hide: bool = False) -> SpanDraft:
    """``span`` as it is sent. The text of a status is not: it is an exception's."""
    context = span.context
    assert context is not None
    parent = span.parent
    events = [(e.name, e.timestamp, dict(e.attributes or {})) for e in span.events]
    links = [(ln.context.trace_id, ln.context.span_id, dict(ln.attributes or {})) for ln in span.links]
    attributes: dict[str, Any] = dict(span.attributes or {})
    if not ours:
        take_out = without_content if hide else without_secrets
        attributes = take_out(attributes)
        events = [(scrub_text(name), at, take_out(told)) for name, at, told in events]
        links = [(trace_id, span_id, take_out(told)) for trace_id, span_id, told in links]
    start, end = span.start_time or 0, span.end_time or 0
    return SpanDraft(
        name=span.name if ours else scrub_text(span.name),
        span_id=context.span_id,
        parent_id=None if parent is None else parent.span_id,
        start_unix_ns=start,
        end_unix_ns=max(start, end),
        kind=span.kind,
        attributes=attributes,
        events=events,  # type: ignore[arg-type]
        links=links,  # type: ignore[arg-type]
        error=span.status.status_code is otel.StatusCode.ERROR,
        remote_parent=parent is not None and parent.is_remote,
    )
