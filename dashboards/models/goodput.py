"""Requests that met their limits, what they cost, and tasks that were solved."""

from __future__ import annotations

from pydantic import Field

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.report import GroupsLeftOut
from dashboards.models.sample import Sampled


class Limits(Model):
    """The limits that were asked for; ``None`` is no limit."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None


class Broken(Model):
    """The misses of one limit; ``read`` of them were looked at, and ``stages`` add up to those."""

    limit: str
    n: int
    read: int
    stages: dict[str, int]


class Cost(Model):
    """What the requests cost, in the price table's currency; ``None`` is not known.

    ``tokens`` is by the token prices over the ``priced`` requests, or what the records
    themselves say; ``gpu`` is GPU price x GPUs x the window of the requests.
    """

    currency: str
    priced: int
    not_priced: int
    tokens: float | None
    gpu: float | None
    gpu_seconds: float | None
    tokens_per_request: float | None
    tokens_per_good_request: float | None
    gpu_per_request: float | None
    gpu_per_good_request: float | None
    gpu_per_million_output_tokens: float | None


class Tasks(Model):
    """Traces with an outcome. Time and cost of the failed ones count for the correct ones."""

    tasks: int
    correct: int
    mean_score: float | None
    time_ns: int
    time_per_correct_ns: int | None
    correct_p50_ns: int | None
    correct_p95_ns: int | None
    cost: float | None
    cost_per_correct: float | None
    failed_for: dict[str, int]


class GoodputFigures(Model):
    """``requests`` = ``good`` + ``missed`` + ``failed`` + ``unknown``.

    ``missed``: ended well and broke a limit. ``failed``: an error or cancelled.
    ``unknown``: broke none that is known, and one could not be told.
    """

    key: dict[str, str | None]
    requests: int
    good: int
    missed: int
    failed: int
    unknown: int
    window_ns: int | None
    requests_per_s: float | None
    goodput_per_s: float | None
    good_share: float | None
    broken: tuple[Broken, ...]
    cost: Cost
    tasks: Tasks


class Goodput(Model):
    """Requests a second that met all the limits.

    ``stages_sampled``: which requests were read for the stages that broke limits, where not
    all; all else is of all.
    """

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    limits: Limits
    overall: GoodputFigures
    groups: tuple[GoodputFigures, ...] = Field(description="costs are by the whole's window")
    groups_left_out: GroupsLeftOut
    stages_sampled: Sampled | None = None
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
