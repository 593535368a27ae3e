"""The figures of many requests in little time. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.filters import Filters
from dashboards.models.report import Losses
from dashboards.models.sample import Sampled


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class SummaryFigures(Model):
    """Percentiles of one stage or measure over its ``n`` values; ``None`` is no data.

    All of it is of the requests that the group ``read``.
    """

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
    """One set of requests; ``key`` as in the report.

    Counts and ``output_tokens`` (``None``: none tells them) are of all of them, stages and
    measures of ``read`` of them.
    """

    key: dict[str, str | None]
    requests: int
    read: int
    ok: int
    errors: int
    cancelled: int
    warm: int
    cold: int
    cached: int
    not_cached: int
    output_tokens: int | None
    stages: tuple[SummaryFigures, ...]
    measures: tuple[SummaryFigures, ...]


class Summary(Model):
    """The chosen requests in ``[from_unix_ns, to_unix_ns)``, whole and per group of ``by``.

    ``exact``: percentiles of all requests. Else, where ``read_from`` names the roll-ups, of
    t-digests over all; or of those that ``sampled`` tells: then a small group may have none of
    its requests read, and no percentiles.
    """

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    from_unix_ns: int | None
    to_unix_ns: int
    exact: bool
    sampled: Sampled | None
    read_from: str
    overall: SummaryGroup
    groups: tuple[SummaryGroup, ...]
    groups_left_out: int
    losses: Losses
