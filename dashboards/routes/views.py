"""What the page needs beside the report: figures in little time, lanes, what filters can be."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from dashboards.models.engine import Engine
from dashboards.models.facets import Facets
from dashboards.models.summary import Summary
from dashboards.queries.dimensions import parse_by
from dashboards.routes.documented import errors
from dashboards.routes.gate import PLAIN, Gate, as_json
from dashboards.routes.parameters import ByQuery, FilterQuery
from dashboards.source import StoreSource
from tracer.clock import Clock


def view_routes(source: StoreSource, at: Clock, gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/api/v1")

    @routes.get("/summary", response_model=Summary)
    def summary(query: Annotated[ByQuery, Query()]) -> Response:
        filters, by = query.filters(at.unix_ns()), parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.summary(filters, by))

    @routes.get("/facets", response_model=Facets)
    def facets(query: Annotated[FilterQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.facets(filters))

    @routes.get(
        "/traces/{trace_id}/engine", response_model=Engine, dependencies=[PLAIN],
        responses=errors(404, 409),
    )  # fmt: skip
    def engine(trace_id: str) -> Response:
        with gate.pass_through():
            return as_json(source.engine(trace_id))

    return routes
