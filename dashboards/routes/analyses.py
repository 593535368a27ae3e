"""Why it is slow, and what would help."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from dashboards.analyses.goodput import parse_limits
from dashboards.models.analysis import Compare, WhatIf
from dashboards.models.attribution import Attribution
from dashboards.models.cache import Cache
from dashboards.models.goodput import Goodput
from dashboards.models.interference import Interference
from dashboards.models.path import CriticalPath, TracePath
from dashboards.models.throughput import Throughput
from dashboards.prices import parse_prices
from dashboards.queries.dimensions import parse_by
from dashboards.routes.documented import errors
from dashboards.routes.gate import PLAIN, Gate, as_json
from dashboards.routes.parameters import (
    AttributionQuery,
    ByQuery,
    CompareQuery,
    GoodputQuery,
    WhatIfQuery,
)
from dashboards.source import StoreSource
from tracer.clock import Clock


def analysis_routes(source: StoreSource, at: Clock, gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/api/v1")
    _add_changes(routes, source, at, gate)
    _add_causes(routes, source, at, gate)
    _add_limits(routes, source, at, gate)
    return routes


def _add_changes(routes: APIRouter, source: StoreSource, at: Clock, gate: Gate) -> None:
    @routes.get("/whatif", response_model=WhatIf)
    def whatif(query: Annotated[WhatIfQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.whatif(filters, query.change))

    @routes.get("/compare", response_model=Compare)
    def compare(query: Annotated[CompareQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.compare(filters, query.a, query.b, match=query.match))


def _add_causes(routes: APIRouter, source: StoreSource, at: Clock, gate: Gate) -> None:
    @routes.get("/attribution", response_model=Attribution)
    def attribution(query: Annotated[AttributionQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.attribution(filters, query.measure, by))

    @routes.get("/path", response_model=CriticalPath)
    def path(query: Annotated[ByQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.path(filters, by))

    @routes.get(
        "/traces/{trace_id}/path", response_model=TracePath, dependencies=[PLAIN],
        responses=errors(404, 409),
    )  # fmt: skip
    def trace_path(trace_id: str) -> Response:
        with gate.pass_through():
            return as_json(source.trace_path(trace_id))

    @routes.get("/interference", response_model=Interference)
    def interference(query: Annotated[ByQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.interference(filters, by))

    @routes.get("/cache", response_model=Cache)
    def cache(query: Annotated[ByQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.cache(filters, by))


def _add_limits(routes: APIRouter, source: StoreSource, at: Clock, gate: Gate) -> None:
    @routes.get("/goodput", response_model=Goodput)
    def goodput(query: Annotated[GoodputQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        limits = parse_limits(query.ttft, query.tpot, query.e2e)
        prices = None if query.prices is None else parse_prices(query.prices)
        with gate.pass_through():
            return as_json(source.goodput(filters, limits, by, prices))

    @routes.get("/throughput", response_model=Throughput)
    def throughput(query: Annotated[ByQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.throughput(filters, by))
