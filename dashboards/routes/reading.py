"""What is there: report, requests, traces, series, status."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from dashboards.models.records import Records
from dashboards.models.report import Report
from dashboards.models.series import Series
from dashboards.models.status import Health, Status
from dashboards.models.trace import Requests, Trace
from dashboards.queries.base import QueryStore
from dashboards.queries.dimensions import parse_by
from dashboards.queries.status import check_store
from dashboards.routes.documented import errors
from dashboards.routes.gate import PLAIN, Gate, as_json
from dashboards.routes.parameters import ByQuery, RecordsQuery, RequestsQuery, SeriesQuery
from dashboards.source import StoreSource
from tracer.clock import Clock


def reading_routes(source: StoreSource, store: QueryStore, at: Clock, gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/api/v1")

    @routes.get("/report", response_model=Report)
    def report(query: Annotated[ByQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        by = parse_by(",".join(query.by))
        with gate.pass_through():
            return as_json(source.report(filters, by))

    @routes.get(
        "/traces/{trace_id}", response_model=Trace, dependencies=[PLAIN], responses=errors(404, 409)
    )
    def trace(trace_id: str) -> Response:
        with gate.pass_through():
            return as_json(source.trace(trace_id))

    @routes.get("/requests", response_model=Requests)
    def requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.requests(filters, sort=query.sort, limit=query.limit))

    @routes.get("/records", response_model=Records)
    def records(query: Annotated[RecordsQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.records(filters, limit=query.limit, marks=query.marks))

    @routes.get("/series", response_model=Series)
    def series(query: Annotated[SeriesQuery, Query()]) -> Response:
        filters = query.filters(at.unix_ns())
        with gate.pass_through():
            return as_json(source.series(filters, query.measure))

    @routes.get("/status", response_model=Status, dependencies=[PLAIN])
    def status() -> Response:
        with gate.pass_through():
            return as_json(source.status())

    @routes.get("/health", response_model=Health, dependencies=[PLAIN])
    def health() -> Response:
        check_store(store)
        return as_json(Health(status="ok"))

    return routes
