"""What a record asks of a model call, whoever made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from opentelemetry.trace import SpanKind

from proxy.request.call import CallStages, ChoiceMarks, Preemption
from tracer.spans import AttributeValue


class ModelCall(Protocol):
    """What a record needs of one model call, whoever made it: the engine or an upstream.

    ``superseded``: a failed attempt that another one followed; it counts for no
    figure of the request. ``internal``: a step of a search of many calls. ``span_id``
    is set where it was told to somebody before.
    """

    operation: str
    handed_mono_ns: int
    model: str
    n: int
    max_tokens: int | None
    queued_mono_ns: int | None
    ended_mono_ns: int | None
    finished: bool
    error_type: str | None
    cancel: Callable[[], object] | None
    choices: dict[int, ChoiceMarks]
    finish_reasons: dict[int, str]
    preemptions: list[Preemption]
    internal: bool
    cut_off: bool

    def seal(self, mono_ns: int) -> None:
        """Called once, when the record is made; a call that still runs ends at ``mono_ns``."""
        ...

    @property
    def source_detail(self) -> str: ...

    @property
    def request_id(self) -> str: ...

    @property
    def input_tokens(self) -> int | None: ...

    @property
    def cached_tokens(self) -> int | None: ...

    @property
    def output_tokens(self) -> int | None: ...

    @property
    def reasoning_tokens(self) -> int | None: ...

    @property
    def finish_reason(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def span_kind(self) -> SpanKind: ...

    @property
    def span_id(self) -> int | None: ...

    @property
    def superseded(self) -> bool: ...

    @property
    def itl_kind(self) -> str: ...

    def stages(self) -> CallStages: ...

    def pace(self) -> tuple[int, int]:
        """Nanoseconds from first to last token, and the number of tokens after the first."""
        ...

    def extra(self) -> Mapping[str, AttributeValue]:
        """Attributes of the call's span beyond those every call has."""
        ...

    def events(self) -> list[tuple[str, int]]:
        """Named instants on the call's span, in ``_mono_ns``."""
        ...
