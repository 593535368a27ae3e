"""What the engine and the GPU did while a trace ran. Offsets are from the trace's start."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Phase(Model):
    """One queue, prefill or decode span of the trace itself."""

    span_id: str
    stage: str
    offset_ns: int
    duration_ns: int


class EngineStep(Model):
    """One engine iteration; its tokens are those of all requests in its batch.

    ``stages`` are the trace's own stages at the middle of the step: empty when the trace
    had no request in the engine then.
    """

    offset_ns: int
    duration_ns: int
    engine: int
    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int
    running: int
    waiting: int
    kv_cache_usage: float
    stages: tuple[str, ...]


class Sharer(Model):
    """A prefill or decode of another trace in the same engine at the same time.

    ``steps`` counts the steps in whose middle both it and this trace were computed.
    """

    trace_id: str
    span_id: str
    stage: str
    offset_ns: int
    duration_ns: int
    steps: int


class Point(Model):
    offset_ns: int
    value: float


class Gauge(Model):
    """One GPU gauge as its sender told it; ``attributes`` say which GPU."""

    name: str
    unit: str
    service: str
    attributes: dict[str, str]
    points: tuple[Point, ...]


class Engine(Model):
    """The lanes below a trace; each is empty where nothing was stored."""

    version: int = 1
    trace_id: str
    phases: tuple[Phase, ...]
    steps: tuple[EngineStep, ...]
    steps_left_out: int = Field(description="later steps beyond the limit")
    sharers: tuple[Sharer, ...]
    sharers_left_out: int = Field(description="those with the shortest overlap")
    gauges: tuple[Gauge, ...]
    gauges_left_out: int
