"""Test code that is traced: a clock you move, and the spans as a tree.

::

    with recording() as seen:
        answer("question")
    assert spans_as_tree(seen.spans) == {"answer": {"retrieval docs": {}}}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from tracer.clock import Anchor, Clock
from tracer.ids import IdSource
from tracer.sdk.providers import SpanIds
from tracer.sdk.runtime import Redact, Runtime, install

Tree = dict[str, Any]


@dataclass
class FakeClock:
    """Both clocks, moved by hand: ``forward(seconds)``."""

    now_ns: int = 1_000_000_000
    epoch_ns: int = 1_700_000_000_000_000_000

    def mono_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.epoch_ns + self.now_ns

    def forward(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@dataclass
class CountingIds:
    """Ids 1, 2, 3 …: readable in a failing test, and the same in each run."""

    last: int = 0

    def trace_id(self) -> int:
        self.last += 1
        return self.last

    span_id = trace_id


@dataclass
class Recorded(SpanProcessor):
    """Ended spans in the order of their ends, and the clock they were stamped by."""

    clock: Clock
    spans: list[ReadableSpan] = field(default_factory=list)

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def named(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        [found] = [span for span in self.spans if span.name == name]
        return found


@contextmanager
def recording(
    clock: Clock | None = None,
    *,
    capture_content: bool = False,
    redact: Redact | None = None,
    content_limit: int = 8192,
    ids: IdSource | None = None,
) -> Iterator[Recorded]:
    """Record decorated calls in memory; faults of the SDK itself are raised, not counted.

    ``ids``: where trace and span ids come from, such as :class:`CountingIds`; random without.
    """
    seen = Recorded(clock or FakeClock())
    provider = TracerProvider(resource=Resource({}), id_generator=SpanIds(ids))
    provider.add_span_processor(seen)
    runtime = Runtime(
        provider.get_tracer("test"), seen.clock, Anchor.take(seen.clock), capture_content, redact,
        content_limit, None, 0.0, raise_faults=True, owned=[seen],
    )  # fmt: skip
    before = install(runtime)
    try:
        yield seen
    finally:
        install(before)


def spans_as_tree(spans: Sequence[ReadableSpan]) -> Tree:
    """Names by parent, in the order of their starts; equal names get ``#2``, ``#3``, …"""
    ids = {s.context.span_id for s in spans if s.context is not None}
    ordered = sorted(spans, key=lambda s: s.start_time or 0)

    def below(parent: int | None) -> Tree:
        found: Tree = {}
        for span in ordered:
            above = span.parent.span_id if span.parent and span.parent.span_id in ids else None
            if above != parent or span.context is None:
                continue
            name, n = span.name, 1
            while name in found:
                n += 1
                name = f"{span.name}#{n}"
            found[name] = below(span.context.span_id)
        return found

    return below(None)
