"""Answers of the analyses. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.filters import Filters
from dashboards.models.sample import Sampled


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Effect(Model):
    """One percentile of ``e2e`` or ``ttft``, as recorded and as it would have been."""

    measure: str
    percentile: str
    n: int
    before_ns: int | None
    after_ns: int | None


class WhatIf(Model):
    """The recorded requests with some stages changed. ``n`` and ``ttft_left_out`` are of those read."""

    version: int = 1
    filters: Filters
    changes: tuple[str, ...]
    requests: int
    ttft_left_out: int = Field(description="requests whose stages before the token are unclear")
    effects: tuple[Effect, ...]
    sampled: Sampled | None = None
    assumptions: tuple[str, ...]


class Difference(Model):
    """One quantile of one quantity in A and in B; the interval is of ``b - a``, at 95 %."""

    quantity: str
    percentile: str
    n_a: int
    n_b: int
    a_ns: float | None
    b_ns: float | None
    difference_ns: float | None
    low_ns: float | None
    high_ns: float | None


class Compare(Model):
    """Two sets of requests, stage by stage.

    ``matched``: both were cut to one mix of lengths, leaving out ``left_out_a`` and
    ``left_out_b``; ``requests_a`` and ``requests_b`` are then those that are left.
    ``sampled_a`` and ``sampled_b``: what was read of each side, where not all.
    """

    version: int = 1
    a: str
    b: str
    requests_a: int
    requests_b: int
    matched: bool = False
    left_out_a: int = 0
    left_out_b: int = 0
    sampled_a: Sampled | None = None
    sampled_b: Sampled | None = None
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
