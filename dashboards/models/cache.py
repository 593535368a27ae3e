"""What the prefix cache saved and what preemption cost."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.report import GroupsLeftOut
from dashboards.models.sample import Sampled


class PrefillRate(Model):
    """Prefill time a token that was not cached, of one model, with its 95 % interval."""

    model: str
    n: int
    ns_per_token: float | None
    low_ns_per_token: float | None
    high_ns_per_token: float | None


class Saved(Model):
    """What the hits of one model saved: ``cached_tokens`` times the rate."""

    model: str
    hits: int
    cached_tokens: int
    saved_ns: int | None
    low_ns: int | None
    high_ns: int | None


class Preempted(Model):
    """What preemption cost: time off the engine, and work done again.

    ``off_ns`` is measured for every request. ``again_ns`` (from the resumption to the
    next token) and ``tokens_again_at_most`` are known of ``known`` preemptions.
    """

    requests: int
    preemptions: int
    off_ns: int
    known: int
    again_ns: int | None
    tokens_again_at_most: int | None


class CacheFigures(Model):
    """``hit_share`` is of the input tokens of the requests that tell both.

    ``cached_over_input`` told more cached than input tokens; their input tokens are counted.
    """

    key: dict[str, str | None]
    requests: int
    cached_known: int
    hits: int
    input_tokens: int
    cached_tokens: int
    hit_share: float | None
    cached_over_input: int = 0
    prefill_ns: int
    saved_ns: int | None
    low_ns: int | None
    high_ns: int | None
    models: tuple[Saved, ...]
    preempted: Preempted


class Cache(Model):
    """Prefill saved by prefix-cache hits, and the cost of preemption.

    ``rates_sampled``: what the rates were measured on, where not on all; all else is of all.
    """

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    rates: tuple[PrefillRate, ...]
    overall: CacheFigures
    groups: tuple[CacheFigures, ...]
    groups_left_out: GroupsLeftOut
    rates_sampled: Sampled | None = None
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
