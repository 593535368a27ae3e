"""Speed for one user beside tokens for all, at each concurrency."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.report import GroupsLeftOut
from dashboards.models.sample import Sampled


class Level(Model):
    """Time bins with this many requests in flight, taken together.

    ``tokens_per_s`` is for all users, ``user_tokens_per_s`` for one that decodes; ``None``
    where no request told its tokens. The percentiles are of the ``requests`` that began in these bins;
    ``thin``: they are too few for the level to be counted for the knee.
    """

    label: str
    concurrency: float
    bins: int
    seconds: float
    tokens_per_s: float | None
    user_tokens_per_s: float | None
    requests: int
    ttft_p50_ns: int | None
    e2e_p50_ns: int | None
    e2e_p95_ns: int | None
    thin: bool = False


class ThroughputFigures(Model):
    """``knee`` is the label of the level, not a thin one, beyond which more users bring little more."""

    key: dict[str, str | None]
    requests: int
    without_tokens: int
    bin_ns: int | None
    levels: tuple[Level, ...]
    knee: str | None
    knee_height: float | None


class Throughput(Model):
    """Throughput against latency; with ``sampled`` the levels are those of its slices of time."""

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    overall: ThroughputFigures
    groups: tuple[ThroughputFigures, ...]
    groups_left_out: GroupsLeftOut
    sampled: Sampled | None = None
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
