"""The critical path, of one trace and of many. Times as in :mod:`dashboards.models.report`."""

from __future__ import annotations

from dashboards.filters import Filters
from dashboards.models.analysis import Model
from dashboards.models.report import GroupsLeftOut
from dashboards.models.sample import Sampled


class Segment(Model):
    """A piece of the path: ``span_id`` held the request; ``None`` is time no stage covers."""

    stage: str
    name: str
    span_id: str | None
    offset_ns: int
    ns: int


class PathStep(Model):
    """One kind of work: a stage, and for tools and retrievals the span's name.

    ``on_path_ns`` held the requests, ``beside_ns`` ran in parallel and held nobody.
    ``if_gone_ns`` is what the requests would have been shorter by without it, at most:
    the time on the path in which no other stage ran. ``runs`` counts spans, ``requests``
    those that have any; the percentiles are of its time on the path in one request that
    ran it.
    """

    stage: str
    name: str
    requests: int
    runs: int
    total_ns: int
    on_path_ns: int
    beside_ns: int
    if_gone_ns: int
    share: float | None
    p50_ns: int | None
    p95_ns: int | None


class RequestPath(Model):
    """The path of one request; its segments divide ``e2e_ns``."""

    trace_id: str
    span_id: str
    name: str
    offset_ns: int
    e2e_ns: int
    segments: tuple[Segment, ...]
    steps: tuple[PathStep, ...]


class TracePath(Model):
    """The paths of every request in one trace; those ``without_spans`` have none."""

    version: int = 1
    trace_id: str
    requests: tuple[RequestPath, ...]
    without_spans: int = 0
    spans_left_out: int
    assumptions: tuple[str, ...]


class PathFigures(Model):
    """Many requests: ``on_path_ns`` of all steps adds up to ``e2e_ns``.

    Of the ``chosen`` so many were ``looked_at``; of these ``requests`` have their spans and all
    figures, and ``without_spans`` have not.
    """

    key: dict[str, str | None]
    chosen: int
    looked_at: int
    requests: int
    without_spans: int
    e2e_ns: int
    beside_ns: int
    steps: tuple[PathStep, ...]


class CriticalPath(Model):
    """Where the critical path of the chosen requests lies; with ``sampled`` counts are of those read."""

    version: int = 1
    filters: Filters
    by: tuple[str, ...]
    overall: PathFigures
    groups: tuple[PathFigures, ...]
    groups_left_out: GroupsLeftOut
    sampled: Sampled | None = None
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
