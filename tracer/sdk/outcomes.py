"""Whether a task was done right: told later, from anywhere, by the id of its trace."""

from __future__ import annotations

import math
import string
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tracer import semconv
from tracer.export import SCOPE
from tracer.ids import RandomIds
from tracer.sdk.content import SLACK
from tracer.sdk.runtime import Runtime, active
from tracer.sdk.secrets import HIDDEN, scrub_text
from tracer.sdk.sizes import text_of
from tracer.spans import SpanDraft, to_readable

_IDS = RandomIds()
_HEX = frozenset(string.hexdigits)
_TRACE_ID_DIGITS = 32


def current_trace_id() -> str | None:
    """The id of the trace that the current span belongs to, as 32 hex digits; None outside one."""
    context = otel.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def outcome(
    trace_id: str | int | None = None,
    *,
    success: bool,
    score: float | None = None,
    reason: str | None = None,
) -> bool:
    """Say whether the task of ``trace_id`` (the current trace's by default) was done right.

    A span of no length named ``outcome`` in that trace; of several the last is right.
    Returns whether it was recorded: not where nothing is configured.

    Raises:
        ValueError: ``trace_id`` is no trace id, there is no current one, or ``score`` is no number.
    """
    known = _trace_id(trace_id)
    if score is not None and not _is_finite(score):
        raise ValueError("score is not a finite number: leave it out if there is none")
    runtime = active()
    if runtime is None:
        return False
    try:
        _emit(runtime, known, bool(success), score, reason)
    except Exception:  # noqa: BLE001  telemetry never breaks the application
        runtime.fault()
        return False
    return True


def _is_finite(score: float) -> bool:
    try:
        return math.isfinite(score)
    except (OverflowError, TypeError, ValueError):  # no double holds it, or it is no number
        return False


def _trace_id(told: str | int | None) -> int:
    text = f"{told:032x}" if isinstance(told, int) else (told or current_trace_id() or "").strip()
    if len(text) == _TRACE_ID_DIGITS and set(text) <= _HEX and int(text, 16):
        return int(text, 16)
    if told is None:
        raise ValueError("there is no current trace: give the trace_id (32 hex digits)")
    raise ValueError(f"trace_id {text[:64]!r} is not one: give 32 hex digits, not all of them 0")


def _emit(
    runtime: Runtime, trace_id: int, success: bool, score: float | None, reason: str | None
) -> None:
    at = runtime.clock.mono_ns()
    runtime.place(at)
    now = at + runtime.offset_ns
    told: dict[str, Any] = {semconv.OUTCOME_SUCCESS: success}
    if score is not None:
        told[semconv.OUTCOME_SCORE] = float(score)
    if reason:
        told.update(_reason(runtime, reason))
    draft = SpanDraft(semconv.OUTCOME_SPAN, _IDS.span_id(), None, now, now, attributes=told)
    span = to_readable(draft, trace_id, runtime.resource, InstrumentationScope(SCOPE))
    for processor in runtime.owned:
        processor.on_end(span)


def _reason(runtime: Runtime, reason: str) -> dict[str, Any]:
    """The caller's own words: redacted and cut, recorded because they were given for it."""
    text, most = text_of(reason), runtime.content_limit
    try:
        hook = runtime.redact
        text = text if hook is None else "".join((hook(semconv.OUTCOME_REASON, text),))
    except Exception:  # noqa: BLE001  what could not be redacted is not recorded; the outcome is
        return {semconv.OUTCOME_REASON: HIDDEN}
    told: dict[str, Any] = {semconv.OUTCOME_REASON: scrub_text(text[: most + SLACK])[:most]}
    return {**told, semconv.CUT: [f"{semconv.OUTCOME_REASON}={len(text)}"]} if len(text) > most else told
