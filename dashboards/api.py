"""The read-only HTTP API over the store, under ``/api/v1``.

Each answer is the JSON of the same model that the command line renders. Handlers are
plain functions, so FastAPI runs them in its thread pool and a slow query never holds
up the event loop, which also takes in telemetry. An error is
``{"error": KIND, "detail": SENTENCE}``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from dashboards.access import TokenGate
from dashboards.errors import KINDS, BadValueError, DashboardError, UnavailableError
from dashboards.filters import WITH_MODEL_CALL, Filters, parse_filters
from dashboards.models.analysis import Compare, WhatIf
from dashboards.models.engine import Engine
from dashboards.models.facets import Facets
from dashboards.models.report import Report
from dashboards.models.series import Series
from dashboards.models.status import Health, Status
from dashboards.models.summary import Summary
from dashboards.models.trace import Requests, Trace
from dashboards.queries.base import QueryLimits, QueryStore
from dashboards.queries.dimensions import parse_by
from dashboards.queries.status import check_store
from dashboards.source import StoreSource
from dashboards.web.page import add_page
from tracer.clock import Clock, SystemClock

MOST_AT_ONCE: Final = 4
"""Reports hold all their values in memory: more at once wait, then are turned away."""
LONGEST_WAIT_S: Final = 10.0


class FilterQuery(BaseModel):
    """The choice of requests, as :func:`dashboards.filters.parse_filters` reads it."""

    model_config = ConfigDict(extra="forbid")

    since: str | None = None
    until: str | None = None
    model: list[str] = []
    route: list[str] = []
    status: list[str] = []
    run: str | None = None
    tag: list[str] = []
    warm: str = "include"
    cached: str = "include"
    operation: str = WITH_MODEL_CALL

    def filters(self, now_unix_ns: int) -> Filters:
        fields = {name: getattr(self, name) for name in FilterQuery.model_fields if name != "tag"}
        return parse_filters(now_unix_ns=now_unix_ns, tags=self.tag, **fields)


class ReportQuery(FilterQuery):
    """``by`` may be repeated and may hold several names with commas between."""

    by: list[str] = []


class RequestsQuery(FilterQuery):
    sort: str = "start"
    limit: int = 20


class SeriesQuery(FilterQuery):
    """``measure`` of the heat map: e2e or ttft."""

    measure: str = "e2e"


class WhatIfQuery(FilterQuery):
    """``change`` is ``STAGE=-20%`` or ``STAGE=+50ms``; it may be repeated."""

    change: list[str] = []


class CompareQuery(FilterQuery):
    """``a`` and ``b`` are the name of a run or a window ``FROM..TO``."""

    a: str
    b: str


def _takes_no_parameters(request: Request) -> None:
    for name in request.query_params:
        raise BadValueError(_unknown(name))


_PLAIN: Final = Depends(_takes_no_parameters)


def build_api(
    store: QueryStore,
    counts: Callable[[], Mapping[str, object]] | None,
    clock: Clock | None = None,
    limits: QueryLimits | None = None,
    token: str | None = None,
) -> FastAPI:
    """The API over ``store``; ``counts`` are asked of the collector at each report.

    With a ``token`` it answers none but those who bring it.
    """
    at = clock or SystemClock()
    source = StoreSource(store, at, counts, limits)
    gate = _Gate(MOST_AT_ONCE, LONGEST_WAIT_S)
    app = FastAPI(
        title="Stagelens",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    _add_errors(app)
    add_page(app)
    if token is not None:
        app.add_middleware(TokenGate, token=token)

    @app.get("/api/v1/report", response_model=Report)
    def report(query: Annotated[ReportQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        by = parse_by(",".join(query.by))
        with gate.pass_through():
            return _json(source.report(filters, by))

    @app.get("/api/v1/traces/{trace_id}", response_model=Trace, dependencies=[_PLAIN])
    def trace(trace_id: str) -> Response:
        with gate.pass_through():
            return _json(source.trace(trace_id))

    @app.get("/api/v1/traces/{trace_id}/engine", response_model=Engine, dependencies=[_PLAIN])
    def engine(trace_id: str) -> Response:
        with gate.pass_through():
            return _json(source.engine(trace_id))

    @app.get("/api/v1/requests", response_model=Requests)
    def requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return _json(source.requests(filters, sort=query.sort, limit=query.limit))

    @app.get("/api/v1/series", response_model=Series)
    def series(query: Annotated[SeriesQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return _json(source.series(filters, query.measure))

    @app.get("/api/v1/summary", response_model=Summary)
    def summary(query: Annotated[ReportQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        by = parse_by(",".join(query.by))
        with gate.pass_through():
            return _json(source.summary(filters, by))

    @app.get("/api/v1/facets", response_model=Facets)
    def facets(query: Annotated[FilterQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return _json(source.facets(filters))

    @app.get("/api/v1/whatif", response_model=WhatIf)
    def whatif(query: Annotated[WhatIfQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return _json(source.whatif(filters, query.change))

    @app.get("/api/v1/compare", response_model=Compare)
    def compare(query: Annotated[CompareQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return _json(source.compare(filters, query.a, query.b))

    @app.get("/api/v1/status", response_model=Status, dependencies=[_PLAIN])
    def status() -> Response:
        with gate.pass_through():
            return _json(source.status())

    @app.get("/api/v1/health", response_model=Health, dependencies=[_PLAIN])
    def health() -> Response:
        check_store(store)
        return _json(Health(status="ok"))

    return app


class _Gate:
    """Lets so many through at once; the others wait ``longest_s`` and are turned away."""

    def __init__(self, most: int, longest_s: float) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._longest_s = longest_s

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        if not self._places.acquire(timeout=self._longest_s):
            raise UnavailableError("too many questions are being answered: ask again in a while")
        try:
            yield
        finally:
            self._places.release()


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(DashboardError)
    def told(_: Request, error: DashboardError) -> JSONResponse:
        kind, code = KINDS.get(type(error), ("failed", 500))
        return JSONResponse({"error": kind, "detail": str(error)}, code)

    @app.exception_handler(RequestValidationError)
    def wrong(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "bad_value", "detail": _sentence(error.errors()[0])}, 400)


def _sentence(problem: Mapping[str, Any]) -> str:
    name = problem["loc"][-1]
    if problem["type"] == "extra_forbidden":
        return _unknown(str(name))
    return f"parameter {name!r} cannot be used: {problem['msg']}"


def _unknown(name: str) -> str:
    return f"parameter {name!r} is not known here: see /api/v1/openapi.json for those that are"
