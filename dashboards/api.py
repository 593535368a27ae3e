"""The read-only HTTP API over the store, under ``/api/v1``.

Each answer is the JSON of the same model that the command line renders. Handlers are
plain functions, so FastAPI runs them in its thread pool and a slow query never holds
up the event loop, which also takes in telemetry. An error is
``{"error": KIND, "detail": SENTENCE}``. HEAD is answered as GET, without the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dashboards.access import HostGate, TokenGate
from dashboards.errors import KINDS, DashboardError
from dashboards.prices import Prices
from dashboards.queries.base import QueryLimits, QueryStore
from dashboards.routes.analyses import analysis_routes
from dashboards.routes.documented import DescribedApi
from dashboards.routes.gate import Gate, unknown
from dashboards.routes.head import HeadAsGet
from dashboards.routes.parameters import EACH_ONCE
from dashboards.routes.reading import reading_routes
from dashboards.routes.views import view_routes
from dashboards.source import StoreSource
from dashboards.web.page import add_page
from tracer.clock import Clock, SystemClock

MOST_AT_ONCE: Final = 4
"""Reports hold all their values in memory: more at once wait, then are turned away."""
LONGEST_WAIT_S: Final = 10.0
_BROKEN: Final = (
    "this question could not be answered (the log of the collector says why): please report it "
    "as a fault"
)


def build_api(
    store: QueryStore,
    counts: Callable[[], Mapping[str, object]] | None,
    clock: Clock | None = None,
    limits: QueryLimits | None = None,
    prices: Prices | None = None,
    token: str | None = None,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The API over ``store``; ``counts`` are asked of the collector at each report.

    ``prices`` is the table for questions that bring none of their own. With a ``token``
    it answers none but those who bring it; with ``hosts`` none that ask it by another site's name.
    """
    at = clock or SystemClock()
    source = StoreSource(store, at, counts, limits, prices)
    gate = Gate(MOST_AT_ONCE, LONGEST_WAIT_S)
    app = DescribedApi(
        asks_token=token is not None,
        title="Stagelens",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        dependencies=[EACH_ONCE],
    )
    _add_errors(app)
    add_page(app)
    if token is not None:
        app.add_middleware(TokenGate, token=token)
    if hosts is not None:
        app.add_middleware(HostGate, hosts=hosts)
    app.add_middleware(HeadAsGet)
    app.include_router(reading_routes(source, store, at, gate))
    app.include_router(view_routes(source, at, gate))
    app.include_router(analysis_routes(source, at, gate))
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(DashboardError)
    def told(_: Request, error: DashboardError) -> JSONResponse:
        kind, code = KINDS.get(type(error), ("failed", 500))
        return JSONResponse({"error": kind, "detail": str(error)}, code)

    @app.exception_handler(HTTPException)
    def refused(_: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        told = {"error": phrase.lower().replace(" ", "_"),
                "detail": f"{error.detail}: /api/v1/openapi.json lists what there is"}  # fmt: skip
        return JSONResponse(told, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    def wrong(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "bad_value", "detail": _sentence(error.errors()[0])}, 400)

    @app.exception_handler(Exception)
    def broken(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"error": "failed", "detail": _BROKEN}, 500)


def _sentence(problem: Mapping[str, Any]) -> str:
    name = problem["loc"][-1]
    if problem["type"] == "extra_forbidden":
        return unknown(str(name))
    return f"parameter {name!r} cannot be used: {problem['msg']}"
