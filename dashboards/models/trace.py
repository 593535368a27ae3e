"""One trace, and lists of requests. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class RequestSummary(Model):
    """What a list shows of one request."""

    trace_id: str
    span_id: str
    start_unix_ns: int
    model: str
    operation: str
    route: str
    status: str
    http_status: int | None = Field(description="None when no response was begun")
    error_type: str | None
    e2e_ns: int
    ttft_ns: int | None
    tpot_ns: float | None = None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    warm: bool | None
    longest_stage: str | None = Field(description="None when no stage took any time")
    longest_stage_ns: int | None


class Requests(Model):
    """Some of the chosen requests; ``total`` is how many there are of them."""

    sort: str
    limit: int
    total: int
    requests: tuple[RequestSummary, ...]


class StageTime(Model):
    """One stage's exclusive time in one request; ``count`` is how often it ran."""

    stage: str
    part_of: str | None = None
    ns: int
    count: int
    share: float | None


class RequestRecord(Model):
    """The whole record of one request, as its root span told it."""

    trace_id: str
    span_id: str
    start_unix_ns: int
    offset_ns: int = Field(description="start, from the start of the trace")
    service: str
    service_instance: str
    model: str
    operation: str
    route: str
    http_status: int | None
    status: str
    error_type: str | None
    finish_reason: str | None
    stream: bool
    choices: int
    e2e_ns: int
    stages: tuple[StageTime, ...]
    stages_sum_ns: int = Field(description="equals e2e_ns")
    first_chunk_ns: int | None
    ttft_ns: int | None
    first_answer_ns: int | None
    tpot_ns: float | None
    itl_kind: str | None
    itl_n: int
    itl_max_ns: int | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    preemptions: int
    in_flight: int = Field(description="other requests in the proxy at arrival")
    running: int | None
    waiting: int | None
    warm: bool | None
    cold_reason: str | None
    source: str | None
    source_detail: tuple[str, ...] = Field(
        default=(), description="which words of the source the figures rest on, and what it lacked"
    )
    repairs: tuple[str, ...]
    tags: dict[str, str]
    cost: float | None


class SpanEvent(Model):
    name: str
    offset_ns: int
    attributes: dict[str, str]


class Span(Model):
    """A span in its place in the tree; ``depth`` 0 is a root.

    ``offset_ns`` is from the start of the trace and negative where a clock elsewhere
    was behind. ``orphan``: it names a parent that is not among the stored spans.
    """

    span_id: str
    parent_span_id: str | None
    depth: int
    orphan: bool
    name: str
    kind: str
    service: str
    stage: str | None
    start_unix_ns: int
    offset_ns: int
    duration_ns: int
    status: str
    status_message: str
    boot_id: str | None = Field(
        default=None, description="of the kernel whose clock stamped it, where its sender told"
    )
    attributes: dict[str, str]
    events: tuple[SpanEvent, ...]


class Trace(Model):
    """One trace: its spans parents first, and the record of each request in it.

    ``start_unix_ns`` is that of the first root; ``duration_ns`` runs from the earliest
    start to the latest end. ``spans_left_out`` counts spans beyond the limit, ``values_cut``
    the values (attributes of spans and events, messages) of which only the beginning is here.
    """

    version: int = 1
    trace_id: str
    start_unix_ns: int
    duration_ns: int
    spans: tuple[Span, ...]
    spans_left_out: int
    values_cut: int = 0
    requests: tuple[RequestRecord, ...]
