"""The query parameters of the API, named as the command line's options."""

from __future__ import annotations

from typing import Final, get_origin

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict

from dashboards.errors import BadValueError
from dashboards.filters import WITH_MODEL_CALL, Filters, parse_filters


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
    exact: bool = False

    def filters(self, now_unix_ns: int) -> Filters:
        fields = {name: getattr(self, name) for name in FilterQuery.model_fields if name != "tag"}
        return parse_filters(now_unix_ns=now_unix_ns, tags=self.tag, **fields)


class ByQuery(FilterQuery):
    """``by`` may be repeated and may hold several names with commas between, escaped in a tag's name."""

    by: list[str] = []


class RequestsQuery(FilterQuery):
    sort: str = "start"
    limit: int = 20


class RecordsQuery(FilterQuery):
    """``marks``: with the hashes of their prompts' beginnings."""

    limit: int = 10_000
    marks: bool = False


class SeriesQuery(FilterQuery):
    """``measure`` of the heat map: e2e or ttft."""

    measure: str = "e2e"


class WhatIfQuery(FilterQuery):
    """``change`` is ``STAGE=-20%`` or ``STAGE=+50ms``; it may be repeated."""

    change: list[str] = []


class CompareQuery(FilterQuery):
    """``a`` and ``b`` are the name of a run or a window ``FROM..TO``; ``match`` their lengths."""

    a: str
    b: str
    match: bool = False


class AttributionQuery(ByQuery):
    """``measure`` is e2e or ttft; ``by`` names the dimensions to compare, all when left out."""

    measure: str = "e2e"


class GoodputQuery(ByQuery):
    """Limits such as ``500ms``; ``prices`` is a price table in JSON, for this question alone."""

    ttft: str | None = None
    tpot: str | None = None
    e2e: str | None = None
    prices: str | None = None


REPEATABLE: Final = tuple(
    sorted({
        name
        for kind in (AttributionQuery, WhatIfQuery)
        for name, field in kind.model_fields.items()
        if get_origin(field.annotation) is list
    })
)  # fmt: skip
"""The parameters that may be given more than once."""
_PREFIX: Final = "/api/"


def _each_once(request: Request) -> None:
    """Of a parameter given twice the last value would be taken and the first passed over."""
    if not request.url.path.startswith(_PREFIX):  # the page says it itself
        return
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if (times := names.count(name)) > 1 and name not in REPEATABLE:
            raise BadValueError(
                f"parameter {name!r} is given {times} times and can be given once: keep one of "
                f"them (only {', '.join(REPEATABLE)} may be repeated)"
            )


EACH_ONCE = Depends(_each_once)
"""For all routes: no value of a parameter is passed over."""
