"""The report's figures.

Times end in ``_ns`` and are whole nanoseconds (percentiles rounded to one), rates end
in ``_per_s``, shares lie in 0..1. ``None`` is "no data", never zero.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dashboards.filters import Filters


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Interval(Model):
    """Where the true percentile lies, at 95 %; ``None`` is a bound that the data does not have."""

    percentile: str
    low_ns: int | None
    high_ns: int | None


class Distribution(Model):
    """Percentiles of one quantity over the ``n`` values there are.

    Exact, with linear interpolation between the two nearest values (numpy's default).
    ``no_data`` counts the requests without a value. ``weak`` names the percentiles with
    less than one value above them (p99 of fewer than 100): they are about the maximum.
    ``intervals`` are those of order statistics (:mod:`dashboards.queries.intervals`), one a
    percentile; empty where none was worked out.
    """

    n: int
    no_data: int
    p50_ns: int | None
    p90_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    weak: tuple[str, ...] = ()
    intervals: tuple[Interval, ...] = ()

    def interval(self, percentile: str) -> Interval | None:
        return next((one for one in self.intervals if one.percentile == percentile), None)


class StageFigures(Distribution):
    """The exclusive time of one stage, over the requests that ran it.

    A request ran a stage when it counted at least one run of it or the stage held time;
    ``unattributed`` is taken over all requests. ``no_data`` counts those that did not
    run it. ``part_of`` names the stage that holds this one (``handoff``,
    ``preempted``): such a part adds nothing to the sum of the stages. ``share`` is the
    sum of the stage over the sum of E2E, of all requests; ``slowest_share`` the same
    among the slowest 5 %.
    """

    stage: str
    part_of: str | None = None
    sum_ns: int
    share: float | None
    slowest_share: float | None


class MeasureFigures(Distribution):
    """``e2e``, ``ttft``, ``first_chunk``, ``first_answer``, ``tpot``, ``itl``, ``itl_chunk``.

    For the two ITL measures ``n`` counts gaps, of all requests together, and ``no_data``
    counts the requests without such a gap; ``itl_chunk`` holds the gaps between chunks
    that are not single tokens, which says nothing about single tokens.
    """

    measure: str


class Counts(Model):
    """How many requests are of each kind; each line adds up to ``total``."""

    total: int
    ok: int
    error: int
    cancelled: int
    other_status: int
    error_types: dict[str, int]

    cached: int
    not_cached: int
    cached_unknown: int

    warm: int
    cold: int
    warm_unknown: int
    cold_reasons: dict[str, int]

    streamed: int
    preempted: int
    repaired: int
    itl_cut: int = Field(description="requests with more gaps than are kept")
    partition_broken: int = Field(description="requests whose stages do not add up to E2E")


class Activity(Model):
    """What went through, over the window from the first start to the last end.

    Rates are ``None`` when the window has no length or nothing is known; token rates
    rest on the requests whose token counts are known (``*_known``).
    ``mean_concurrency`` is the sum of E2E over the window, ``peak_concurrency`` the most
    requests in flight at one instant.
    """

    start_unix_ns: int | None
    end_unix_ns: int | None
    window_ns: int | None
    requests_per_s: float | None
    input_tokens: int | None
    input_tokens_known: int
    input_tokens_per_s: float | None
    output_tokens: int | None
    output_tokens_known: int
    output_tokens_per_s: float | None
    mean_concurrency: float | None
    peak_concurrency: int


class Slice(Model):
    """All figures of one set of requests; ``key`` is its value in each dimension of ``by``.

    A ``None`` in ``key`` is the group of requests of which the value is not known (or,
    for ``error_type`` and ``finish_reason``, that have none). ``slowest_n`` requests
    make up the slowest 5 %: a twentieth of them, rounded up, and any that tie.
    """

    key: dict[str, str | None]
    counts: Counts
    activity: Activity
    stages: tuple[StageFigures, ...]
    measures: tuple[MeasureFigures, ...]
    slowest_n: int

    def stage(self, name: str) -> StageFigures:
        return next(one for one in self.stages if one.stage == name)

    def measure(self, name: str) -> MeasureFigures:
        return next(one for one in self.measures if one.measure == name)


class Loss(Model):
    """Items lost at the senders for one reason."""

    reason: str
    in_window: int
    since_start: int


class SignalCounts(Model):
    """One signal in the collector: received = written + refused + set aside + in flight.

    Counted since its spool was made, so across restarts of the collector.
    """

    received: int = 0
    written: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    set_aside: int = Field(default=0, description="kept in files: the store would not take them")
    in_flight: int = 0


class Losses(Model):
    """What is known to be missing from the figures.

    ``senders`` is how many told the store their own losses; with none, the losses at
    the senders are not known and the totals are ``None``. ``in_window`` is what they
    lost in the report's window, ``since_start`` since they started. ``collector`` is
    ``None`` when no running collector was asked.
    """

    senders: int
    spans_made: int | None = Field(description="spans the senders recorded since they started")
    spans_in_window: int | None
    spans_since_start: int | None
    spans: tuple[Loss, ...]
    steps_in_window: int | None
    steps_since_start: int | None
    steps: tuple[Loss, ...]
    collector: dict[str, SignalCounts] | None


class GroupsLeftOut(Model):
    """Groups beyond the limit, the smallest ones."""

    groups: int
    requests: int


class Report(Model):
    """Where the time went, over the chosen requests and per group."""

    version: int = 1
    made_at_unix_ns: int
    database: str
    filters: Filters
    by: tuple[str, ...]
    overall: Slice
    groups: tuple[Slice, ...]
    groups_left_out: GroupsLeftOut
    losses: Losses
    assumptions: tuple[str, ...]
    reading: tuple[str, ...]
