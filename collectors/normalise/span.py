"""One stored span as the normaliser sees it, and how its text values are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MOST_TOKENS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """Times in nanoseconds of the wall clock; ``attributes`` are those of ``names.WANTED``.

    ``first_chunk_ns`` and ``last_chunk_ns`` are the times of its chunk events, 0 for none;
    ``every_chunk`` says that each chunk has an event, so that the last one is the last chunk.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    service: str
    instance: str
    scope: str
    start_ns: int
    end_ns: int
    failed: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    first_chunk_ns: int = 0
    last_chunk_ns: int = 0
    exception: str = ""

    def text(self, names: Iterable[str]) -> str:
        """The first of ``names`` that has a value."""
        for name in names:
            if value := self.attributes.get(name):
                return value
        return ""

    def number(self, name: str) -> float | None:
        """A finite number that is not negative, or None."""
        try:
            value = float(self.attributes[name])
        except (KeyError, ValueError):
            return None
        return value if math.isfinite(value) and value >= 0 else None

    def seconds(self, name: str) -> int | None:
        """Seconds as whole nanoseconds, or None."""
        value = self.number(name)
        return None if value is None or value > 1e9 else round(value * 1e9)

    def milliseconds(self, name: str) -> int | None:
        """Milliseconds as whole nanoseconds, or None."""
        value = self.number(name)
        return None if value is None or value > 1e12 else round(value * 1e6)

    def count(self, names: Iterable[str]) -> int | None:
        """The first of ``names`` that is a count, or None."""
        for name in names:
            value = self.number(name)
            if value is not None and value <= MOST_TOKENS:
                return int(value)
        return None
