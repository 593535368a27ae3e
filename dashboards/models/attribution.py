"""What makes the slow requests slow. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.sample import Sampled


class StageShift(Model):
    """Mean time of a stage among the slow and among the middle requests.

    ``difference_ns`` with a 95 % interval (Welch); ``share`` is its part of the whole
    difference, so the shares of all stages add up to 1. ``rest`` (TTFT alone) is the way
    from the end of prefill to the client.
    """

    stage: str
    slow_ns: float
    middle_ns: float
    difference_ns: float
    low_ns: float | None
    high_ns: float | None
    share: float | None


class SliceShift(Model):
    """How often a value of a dimension occurs among the slow and among the middle ones.

    The interval is of the difference of the two shares, at 95 % (Newcombe).
    ``stands_out``: it does not hold 0.
    """

    dimension: str
    value: str | None
    slow: int
    middle: int
    slow_share: float
    middle_share: float
    difference: float
    low: float
    high: float
    stands_out: bool


class Attribution(Model):
    """Slow: at or above the 95th percentile of ``measure``; middle: its 40th to 60th.

    With ``sampled`` all counts are of the requests read.
    """

    version: int = 1
    filters: Filters
    measure: str
    requests: int
    without_measure: int
    slow: int
    middle: int
    slow_from_ns: int | None
    middle_from_ns: int | None
    middle_to_ns: int | None
    slow_mean_ns: float | None
    middle_mean_ns: float | None
    stages: tuple[StageShift, ...]
    slices: tuple[SliceShift, ...]
    sampled: Sampled | None = None
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
