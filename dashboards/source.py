"""Where answers come from: a store opened here, or a collector's API asked over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dashboards.analyses.attribution import attribution
from dashboards.analyses.cache import cache
from dashboards.analyses.compare import compare, parse_side
from dashboards.analyses.goodput import goodput
from dashboards.analyses.interfering import interference
from dashboards.analyses.paths import critical_paths, trace_path
from dashboards.analyses.throughput import throughput
from dashboards.analyses.whatif import parse_changes, whatif
from dashboards.filters import Filters
from dashboards.models.analysis import Compare, WhatIf
from dashboards.models.attribution import Attribution
from dashboards.models.cache import Cache
from dashboards.models.engine import Engine
from dashboards.models.facets import Facets
from dashboards.models.goodput import Goodput, Limits
from dashboards.models.interference import Interference
from dashboards.models.path import CriticalPath, TracePath
from dashboards.models.records import Records
from dashboards.models.report import Report
from dashboards.models.series import Series
from dashboards.models.status import Status
from dashboards.models.summary import Summary
from dashboards.models.throughput import Throughput
from dashboards.models.trace import Requests, Trace
from dashboards.prices import Prices
from dashboards.queries.base import QueryLimits, QueryStore
from dashboards.queries.engine import engine
from dashboards.queries.facets import facets
from dashboards.queries.operations import check_operation
from dashboards.queries.records import records
from dashboards.queries.report import report
from dashboards.queries.requests import requests
from dashboards.queries.series import series
from dashboards.queries.status import status
from dashboards.queries.summary import summary
from dashboards.queries.trace import trace
from tracer.clock import Clock


class Source(Protocol):
    """What every command that shows figures asks. Errors are ``DashboardError``."""

    def report(self, filters: Filters, by: Sequence[str] = ()) -> Report: ...

    def trace(self, trace_id: str) -> Trace: ...

    def engine(self, trace_id: str) -> Engine: ...

    def requests(self, filters: Filters, *, sort: str = "start", limit: int = 20) -> Requests: ...

    def records(
        self, filters: Filters, *, limit: int = 10_000, marks: bool = False
    ) -> Records: ...

    def status(self) -> Status: ...

    def series(self, filters: Filters, measure: str = "e2e") -> Series: ...

    def facets(self, filters: Filters) -> Facets: ...

    def summary(self, filters: Filters, by: Sequence[str] = ()) -> Summary: ...

    def whatif(self, filters: Filters, changes: Sequence[str]) -> WhatIf: ...

    def compare(self, filters: Filters, a: str, b: str, *, match: bool = False) -> Compare: ...

    def attribution(
        self, filters: Filters, measure: str = "e2e", by: Sequence[str] = ()
    ) -> Attribution: ...

    def path(self, filters: Filters, by: Sequence[str] = ()) -> CriticalPath: ...

    def trace_path(self, trace_id: str) -> TracePath: ...

    def interference(self, filters: Filters, by: Sequence[str] = ()) -> Interference: ...

    def cache(self, filters: Filters, by: Sequence[str] = ()) -> Cache: ...

    def goodput(
        self,
        filters: Filters,
        limits: Limits,
        by: Sequence[str] = (),
        prices: Prices | None = None,
    ) -> Goodput: ...

    def throughput(self, filters: Filters, by: Sequence[str] = ()) -> Throughput: ...


class StoreSource:
    """Answers from an open store; ``counts`` are the collector's own, where one runs here.

    ``prices`` is the table for questions that bring none of their own.
    """

    def __init__(
        self,
        store: QueryStore,
        clock: Clock,
        counts: Callable[[], Mapping[str, object]] | None = None,
        limits: QueryLimits | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._prices = prices
        self._store = store
        self._clock = clock
        self._counts = counts
        self._limits = limits

    def report(self, filters: Filters, by: Sequence[str] = ()) -> Report:
        self._check(filters)
        return report(
            self._store,
            filters,
            by,
            now_unix_ns=self._clock.unix_ns(),
            counts=self._told(),
            limits=self._limits,
        )

    def trace(self, trace_id: str) -> Trace:
        return trace(self._store, trace_id, self._limits)

    def engine(self, trace_id: str) -> Engine:
        return engine(self._store, trace_id, self._limits)

    def requests(self, filters: Filters, *, sort: str = "start", limit: int = 20) -> Requests:
        self._check(filters)
        return requests(self._store, filters, sort=sort, limit=limit, limits=self._limits)

    def records(self, filters: Filters, *, limit: int = 10_000, marks: bool = False) -> Records:
        self._check(filters)
        return records(self._store, filters, limit=limit, marks=marks, limits=self._limits)

    def status(self) -> Status:
        return status(
            self._store,
            now_unix_ns=self._clock.unix_ns(),
            counts=self._told(),
            limits=self._limits,
        )

    def series(self, filters: Filters, measure: str = "e2e") -> Series:
        self._check(filters)
        return series(
            self._store,
            filters,
            now_unix_ns=self._clock.unix_ns(),
            measure=measure,
            limits=self._limits,
        )

    def facets(self, filters: Filters) -> Facets:
        self._check(filters)
        return facets(self._store, filters, self._limits)

    def summary(self, filters: Filters, by: Sequence[str] = ()) -> Summary:
        self._check(filters)
        return summary(
            self._store,
            filters,
            by,
            now_unix_ns=self._clock.unix_ns(),
            counts=self._told(),
            limits=self._limits,
        )

    def whatif(self, filters: Filters, changes: Sequence[str]) -> WhatIf:
        self._check(filters)
        return whatif(self._store, filters, parse_changes(changes), self._limits)

    def compare(self, filters: Filters, a: str, b: str, *, match: bool = False) -> Compare:
        self._check(filters)
        now = self._clock.unix_ns()
        sides = [parse_side(text, filters, now) for text in (a, b)]
        return compare(self._store, sides[0], sides[1], self._limits, match=match)

    def attribution(
        self, filters: Filters, measure: str = "e2e", by: Sequence[str] = ()
    ) -> Attribution:
        self._check(filters)
        return attribution(self._store, filters, measure, by, self._limits)

    def path(self, filters: Filters, by: Sequence[str] = ()) -> CriticalPath:
        self._check(filters)
        return critical_paths(self._store, filters, by, self._limits)

    def trace_path(self, trace_id: str) -> TracePath:
        return trace_path(self.trace(trace_id))

    def interference(self, filters: Filters, by: Sequence[str] = ()) -> Interference:
        self._check(filters)
        return interference(self._store, filters, by, self._limits)

    def cache(self, filters: Filters, by: Sequence[str] = ()) -> Cache:
        self._check(filters)
        return cache(self._store, filters, by, self._limits)

    def goodput(
        self,
        filters: Filters,
        limits: Limits,
        by: Sequence[str] = (),
        prices: Prices | None = None,
    ) -> Goodput:
        self._check(filters)
        table = self._prices if prices is None else prices
        return goodput(self._store, filters, limits, by, table, self._limits)

    def throughput(self, filters: Filters, by: Sequence[str] = ()) -> Throughput:
        self._check(filters)
        return throughput(self._store, filters, by, self._limits)

    def _check(self, filters: Filters) -> None:
        check_operation(self._store, filters, self._limits or QueryLimits())

    def _told(self) -> Mapping[str, object] | None:
        return None if self._counts is None else self._counts()
