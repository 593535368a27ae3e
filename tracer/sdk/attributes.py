"""A span's attributes, written in one step and as late as others allow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import Span


class When(IntEnum):
    """When a span's attributes are looked at, by others than us."""

    BEFORE_START = 0
    """By its sampler."""
    AT_START = 1
    """By a processor that is told of the start."""
    AT_END = 2
    """By processors that are told of the end alone."""
    NEVER = 3
    """By nobody: our processor is the only one, and joins them when the span is sent."""


def below_what_is_there(
    begun: Mapping[str, Any], there: Mapping[str, Any] | None, told: Mapping[str, Any]
) -> dict[str, Any]:
    """``told`` at the end, and of ``begun`` what the program has not set itself since then."""
    if not there:
        return {**begun, **told}
    return {**{name: value for name, value in begun.items() if name not in there}, **told}


def write(span: Span, told: Mapping[str, Any], shared: bool = True) -> None:
    """Set ``told`` on ``span``: names of ours with numbers, truth values and texts.

    The SDK looks at each value's kind and takes a lock for each name; what is plain and fits
    needs neither. A span of another kind, an ended one, and one whose values are to be cut
    or counted gets them the usual way. ``shared``: others may have the span already, so that
    the SDK's lock is needed.
    """
    held = getattr(span, "_attributes", None)
    if type(held) is BoundedAttributes and held.max_value_len is None:
        most, kept = held.maxlen, held._dict  # noqa: SLF001
        fits = most is None or len(kept) + len(told) <= most
        if fits and getattr(span, "_end_time", 0) is None:
            if not shared:
                kept.update(told)
                return
            with held._lock:  # noqa: SLF001
                kept.update(told)
            return
    span.set_attributes(told)
