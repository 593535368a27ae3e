"""The figures of many requests in little time. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.filters import Filters
from dashboards.models.report import Losses


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class SummaryFigures(Model):
    """Percentiles of one stage or measure over its ``n`` values; ``None`` is no data."""

    name: str
    n: int
    no_data: int
    p50_ns: int | None
    p90_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    sum_ns: int
    share: float | None = Field(description="of the E2E time of all requests; stages alone")


class SummaryGroup(Model):
    """One set of requests; ``key`` as in the report."""

    key: dict[str, str | None]
    requests: int
    ok: int
    errors: int
    cancelled: int
    warm: int
    cold: int
    cached: int
    not_cached: int
    output_tokens: int
    stages: tuple[SummaryFigures, ...]
    measures: tuple[SummaryFigures, ...]


class Summary(Model):
    """The chosen requests in ``[from_unix_ns, to_unix_ns)``, whole and per group of ``by``.

    ``exact``: percentiles of all requests; else of a part of them that a hash picks, or, where
    ``read_from`` names the roll-ups, of t-digests. A group may be too small to have any picked:
    then it has ``n`` and no percentiles. All else is of all requests.
    """

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    from_unix_ns: int | None
    to_unix_ns: int
    exact: bool
    read_from: str
    overall: SummaryGroup
    groups: tuple[SummaryGroup, ...]
    groups_left_out: int
    losses: Losses
