"""Turning on the instrumentations that others keep well, by the name of what they instrument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

GROUPS = ("openinference_instrumentor", "opentelemetry_instrumentor")
Found = list[tuple[str, metadata.EntryPoint]]


def find(names: Sequence[str]) -> Found:
    """The installed instrumentation of each name: OpenInference's, or OpenTelemetry's.

    Raises:
        ValueError: there is none; the text says what to install.
    """
    found: Found = []
    for name in names:
        spelled = {name, name.replace("-", "_"), name.replace("_", "-")}
        points = [
            point
            for group in GROUPS
            for point in metadata.entry_points(group=group)
            if point.name in spelled
        ]
        if not points:
            raise ValueError(_missing(name))
        found.append((name, points[0]))
    return found


def turn_on(found: Found, provider: TracerProvider, *, hide: bool) -> list[Callable[[], None]]:
    """Instrument with spans of ``provider``; what undoes each. ``hide``: no content.

    Raises:
        ValueError: the package to instrument is not there, or of a version that does not fit.
    """
    undo: list[Callable[[], None]] = []
    for name, point in found:
        instrumentor: Any = point.load()()
        conflict = _conflict(instrumentor)
        if conflict:
            raise ValueError(f"instrument {name!r}: {conflict}")
        if not getattr(instrumentor, "is_instrumented_by_opentelemetry", False):
            instrumentor.instrument(tracer_provider=provider, **_config(point.value, hide))
            undo.append(instrumentor.uninstrument)
    return undo


def _conflict(instrumentor: Any) -> str:
    check = getattr(instrumentor, "_check_dependency_conflicts", None)
    found = check() if check is not None and not inspect.signature(check).parameters else None
    return str(found) if found else ""


def _config(where: str, hide: bool) -> dict[str, Any]:
    """OpenInference records content unless it is told not to."""
    if not where.startswith("openinference.") or not hide:
        return {}
    try:
        from openinference.instrumentation import TraceConfig  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    return {
        "config": TraceConfig(
            hide_inputs=True, hide_outputs=True, hide_llm_invocation_parameters=True,
            hide_embedding_vectors=True,
        )
    }  # fmt: skip


def _missing(name: str) -> str:
    known = sorted({p.name for group in GROUPS for p in metadata.entry_points(group=group)})
    return (
        f"instrument {name!r}: no instrumentation of that name is installed: "
        f"pip install openinference-instrumentation-{name} or opentelemetry-instrumentation-{name}"
        f" (installed: {', '.join(known) or 'none'})"
    )
