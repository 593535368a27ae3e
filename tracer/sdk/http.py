"""What a request tells of itself: its method as it is recorded, and whose trace it joins."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate
from opentelemetry import trace as otel_trace
from opentelemetry.trace import SpanKind

Scope = MutableMapping[str, Any]
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""Any other is a client's own word, and is recorded as ``_OTHER``."""


def known_method(method: str) -> str:
    return method if method in METHODS else "_OTHER"


def span_method(method: str) -> str:
    """A method as spans are named by it."""
    return "HTTP" if method == "_OTHER" else method


def caller_of(scope: Scope) -> otel_context.Context:
    """The framework's own span of this request, else the caller's trace from its headers.

    Never what the server was started in. FastAPI makes server spans itself from 0.160 on.
    """
    around = otel_trace.get_current_span()
    if around.is_recording() and getattr(around, "kind", None) is SpanKind.SERVER:
        return otel_context.get_current()
    propagator = propagate.get_global_textmap()
    carrier: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in propagator.fields:
            told = value.decode("latin-1")
            twice = key in carrier
            carrier[key] = "" if twice and key == "traceparent" else (
                f"{carrier[key]},{told}" if twice else told
            )  # fmt: skip
    return propagator.extract(carrier, otel_context.Context())


def is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


def is_comment(part: bytes) -> bool:
    """Whether it only keeps the connection alive."""
    return part.startswith(b":") and all(
        not line or line.startswith(b":") for line in part.splitlines()
    )
