"""Where answers come from: a store opened here, or a collector's API asked over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dashboards.filters import Filters
from dashboards.models.report import Report
from dashboards.models.status import Status
from dashboards.models.trace import Requests, Trace
from dashboards.queries.base import QueryLimits, QueryStore
from dashboards.queries.report import report
from dashboards.queries.requests import requests
from dashboards.queries.status import status
from dashboards.queries.trace import trace
from tracer.clock import Clock


class Source(Protocol):
    """What every command that shows figures asks. Errors are ``DashboardError``."""

    def report(self, filters: Filters, by: Sequence[str] = ()) -> Report: ...

    def trace(self, trace_id: str) -> Trace: ...

    def requests(self, filters: Filters, *, sort: str = "start", limit: int = 20) -> Requests: ...

    def status(self) -> Status: ...


class StoreSource:
    """Answers from an open store; ``counts`` are the collector's own, where one runs here."""

    def __init__(
        self,
        store: QueryStore,
        clock: Clock,
        counts: Callable[[], Mapping[str, object]] | None = None,
        limits: QueryLimits | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._counts = counts
        self._limits = limits

    def report(self, filters: Filters, by: Sequence[str] = ()) -> Report:
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

    def requests(self, filters: Filters, *, sort: str = "start", limit: int = 20) -> Requests:
        return requests(self._store, filters, sort=sort, limit=limit, limits=self._limits)

    def status(self) -> Status:
        return status(
            self._store,
            now_unix_ns=self._clock.unix_ns(),
            counts=self._told(),
            limits=self._limits,
        )

    def _told(self) -> Mapping[str, object] | None:
        return None if self._counts is None else self._counts()
