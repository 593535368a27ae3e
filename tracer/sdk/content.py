"""What may be recorded of arguments and results: sizes always, text only where asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span

from tracer import semconv
from tracer.sdk.runtime import Runtime

MOST_DOCUMENTS = 100


def text_of(value: object) -> str:
    """``value`` as JSON, or as whatever text can be had of it; never raises."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001  a stranger's object may raise anything
        return f"<{type(value).__name__}>"


def note_content(runtime: Runtime, span: Span, name: str, value: object) -> None:
    """Record ``value`` under ``name``, redacted and cut at a character, if content is captured.

    What was cut is named in ``stagelens.cut`` with its whole length.
    """
    if not runtime.capture_content:
        return
    text = text_of(value)
    if runtime.redact is not None:
        text = runtime.redact(name, text)
    if len(text) > runtime.content_limit:
        span.set_attribute(semconv.CUT, [f"{name}={len(text)}"])
        text = text[: runtime.content_limit]
    span.set_attribute(name, text.encode("utf-8", "replace").decode())


def note_documents(runtime: Runtime, span: Span, found: object) -> None:
    """The number of documents, and the id and score of each where it has them; no text."""
    if not isinstance(found, list | tuple):
        return
    span.set_attribute(semconv.DOCUMENT_COUNT, len(found))
    told = [_id_and_score(one) for one in found[:MOST_DOCUMENTS]]
    known = [one for one in told if one]
    if known:
        span.set_attribute(semconv.GEN_AI_RETRIEVAL_DOCUMENTS, json.dumps(known, default=str))
    note_content(runtime, span, semconv.DOCUMENT_TEXTS, found)


def _id_and_score(document: object) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in ("id", "score"):
        value = (
            document.get(name) if isinstance(document, Mapping) else getattr(document, name, None)
        )
        if isinstance(value, str | int | float):
            told[name] = value[:256] if isinstance(value, str) else value
    return told
