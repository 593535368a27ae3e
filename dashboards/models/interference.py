"""Decode time lost to other requests' prefills."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.report import GroupsLeftOut


class Cause(Model):
    """A request, and the nanoseconds that its prefill cost; ``None`` ids: nobody known."""

    trace_id: str | None
    span_id: str | None
    ns: int


class Victim(Model):
    """A request, what its decode lost, and who caused most of it."""

    trace_id: str
    span_id: str
    decode_ns: int
    lost_ns: int
    share: float | None
    steps: int
    causes: tuple[Cause, ...]


class Causer(Model):
    """A request whose prefill held up others."""

    trace_id: str | None
    span_id: str | None
    caused_ns: int
    steps: int
    victims: int


class Baseline(Model):
    """The median time of decode-only steps of one batch size."""

    instance: str
    decode_requests: int
    steps: int
    ns: int


class InterferenceFigures(Model):
    """``lost_ns`` is the sum over all victims and equals ``caused_ns``, that over all causers.

    ``unknown_ns`` is the part of it whose causer is not stored. The lists hold the worst.
    Of the ``requests`` those ``without_spans`` and ``elsewhere`` (in an engine without steps that
    prefilled while others decoded) are in no sum; ``share`` is null where no decode is known.
    """

    key: dict[str, str | None]
    chosen: int
    requests: int
    without_spans: int
    elsewhere: int = 0
    victims: int
    causers: int
    decode_ns: int
    lost_ns: int
    caused_ns: int
    unknown_ns: int
    share: float | None
    lost_p50_ns: int | None
    lost_p95_ns: int | None
    worst_victims: tuple[Victim, ...]
    worst_causers: tuple[Causer, ...]


class Interference(Model):
    """How much of the chosen requests' decode went to other requests' prefills.

    Of very many chosen requests the latest are looked at: ``requests`` of the ``chosen``, those
    from ``from_unix_ns`` on. The window below is theirs; a group's ``chosen`` is its part of them.
    ``steps`` are all that decoded in the window, ``mixed_steps`` those that prefilled too.
    Not used: ``mixed_left_out`` (beyond the limit, the earliest), ``without_baseline``, and
    ``several_engines`` (steps of an instance with more than one engine: whose they are is
    not known). Not read, the earliest again: ``requests_left_out`` of those that ran in the window,
    and ``spans_left_out`` of their prefills and decodes.
    """

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    from_unix_ns: int | None
    steps: int
    mixed_steps: int
    mixed_left_out: int
    without_baseline: int
    several_engines: int
    requests_left_out: int = 0
    spans_left_out: int = 0
    baselines: tuple[Baseline, ...]
    overall: InterferenceFigures
    groups: tuple[InterferenceFigures, ...]
    groups_left_out: GroupsLeftOut
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
