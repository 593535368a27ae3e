"""Requests over time: a row a time step, and the cells of a heat map."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.filters import Filters


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(Model):
    """One time step that has requests; ``None`` is no data. ``start_unix_ns`` is its begin."""

    start_unix_ns: int
    requests: int
    errors: int
    cancelled: int
    output_tokens: int | None
    e2e_p50_ns: int | None
    e2e_p95_ns: int | None
    e2e_p99_ns: int | None
    ttft_n: int
    ttft_p50_ns: int | None
    ttft_p95_ns: int | None
    ttft_p99_ns: int | None


class Cell(Model):
    """``n`` requests of a time step whose ``measure`` lies in ``[low_ns, high_ns)``."""

    start_unix_ns: int
    low_ns: int
    high_ns: int
    n: int


class Series(Model):
    """The chosen requests by the step in which they began; steps without any are left out.

    ``later`` of them began after ``to_unix_ns``, by a clock that is ahead, and are in no step.
    """

    version: int = 1
    filters: Filters
    from_unix_ns: int
    to_unix_ns: int
    step_ns: int
    measure: str = Field(description="of the cells: e2e or ttft")
    rolled_up: bool = Field(
        default=False, description="whether the steps are from the sketches by minute and hour"
    )
    later: int = 0
    steps: tuple[Step, ...]
    cells: tuple[Cell, ...]
