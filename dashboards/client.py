"""Answers from a collector that runs elsewhere, over its HTTP API."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from pydantic import BaseModel, ValidationError

from dashboards.errors import KINDS, BadValueError, DashboardError, UnavailableError
from dashboards.filters import Filters, to_query
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
from dashboards.models.status import Health, Status
from dashboards.models.summary import Summary
from dashboards.models.throughput import Throughput
from dashboards.models.trace import Requests, Trace
from dashboards.prices import Prices
from dashboards.queries.trace import parse_trace_id

M = TypeVar("M", bound=BaseModel)
MOST_BYTES: Final = 256 * 1024 * 1024
MOST_CHARS: Final = 60_000
"""Of a question: the API's server reads no longer a line."""
_ERRORS: Final = {kind: error for error, (kind, _) in KINDS.items()}


class CollectorClient:
    """A :class:`dashboards.source.Source` over HTTP; ``url`` is the API's (port 8090).

    ``token`` goes to that address alone, never along a redirect.

    Raises:
        UnauthorizedError: it asks for a token, and this is not it.
        BadValueError: ``url`` is no http(s) address, or the collector refused a value.
        UnavailableError: nothing answers there in ``timeout_s``, or not as this API.
    """

    def __init__(self, url: str, timeout_s: float = 60.0, token: str | None = None) -> None:
        self._url = _checked(url)
        self._token = token
        self._timeout_s = timeout_s
        self._opener = _opener(self._url)

    def report(self, filters: Filters, by: Sequence[str] = ()) -> Report:
        return self._get("/report", _by(filters, by), Report)

    def trace(self, trace_id: str) -> Trace:
        return self._get(f"/traces/{parse_trace_id(trace_id)}", [], Trace)

    def engine(self, trace_id: str) -> Engine:
        return self._get(f"/traces/{parse_trace_id(trace_id)}/engine", [], Engine)

    def requests(self, filters: Filters, *, sort: str = "start", limit: int = 20) -> Requests:
        pairs = [*to_query(filters), ("sort", sort), ("limit", str(limit))]
        return self._get("/requests", pairs, Requests)

    def records(self, filters: Filters, *, limit: int = 10_000, marks: bool = False) -> Records:
        pairs = [*to_query(filters), ("limit", str(limit)), *([("marks", "true")] if marks else [])]
        return self._get("/records", pairs, Records)

    def status(self) -> Status:
        return self._get("/status", [], Status)

    def series(self, filters: Filters, measure: str = "e2e") -> Series:
        return self._get("/series", [*to_query(filters), ("measure", measure)], Series)

    def facets(self, filters: Filters) -> Facets:
        return self._get("/facets", to_query(filters), Facets)

    def summary(self, filters: Filters, by: Sequence[str] = ()) -> Summary:
        pairs = [*to_query(filters), *(("by", name) for name in by)]
        return self._get("/summary", pairs, Summary)

    def whatif(self, filters: Filters, changes: Sequence[str]) -> WhatIf:
        pairs = [*to_query(filters), *(("change", text) for text in changes)]
        return self._get("/whatif", pairs, WhatIf)

    def compare(self, filters: Filters, a: str, b: str, *, match: bool = False) -> Compare:
        pairs = [*to_query(filters), ("a", a), ("b", b), ("match", str(match).lower())]
        return self._get("/compare", pairs, Compare)

    def attribution(
        self, filters: Filters, measure: str = "e2e", by: Sequence[str] = ()
    ) -> Attribution:
        return self._get("/attribution", [*_by(filters, by), ("measure", measure)], Attribution)

    def path(self, filters: Filters, by: Sequence[str] = ()) -> CriticalPath:
        return self._get("/path", _by(filters, by), CriticalPath)

    def trace_path(self, trace_id: str) -> TracePath:
        return self._get(f"/traces/{parse_trace_id(trace_id)}/path", [], TracePath)

    def interference(self, filters: Filters, by: Sequence[str] = ()) -> Interference:
        return self._get("/interference", _by(filters, by), Interference)

    def cache(self, filters: Filters, by: Sequence[str] = ()) -> Cache:
        return self._get("/cache", _by(filters, by), Cache)

    def goodput(
        self,
        filters: Filters,
        limits: Limits,
        by: Sequence[str] = (),
        prices: Prices | None = None,
    ) -> Goodput:
        pairs = _by(filters, by)
        for name in ("ttft", "tpot", "e2e"):
            if (ns := getattr(limits, f"{name}_ns")) is not None:
                pairs.append((name, f"{ns}ns"))
        if prices is not None:
            pairs.append(("prices", prices.model_dump_json(exclude_none=True)))
        return self._get("/goodput", pairs, Goodput)

    def throughput(self, filters: Filters, by: Sequence[str] = ()) -> Throughput:
        return self._get("/throughput", _by(filters, by), Throughput)

    def health(self) -> Health:
        return self._get("/health", [], Health)

    def _get(self, path: str, pairs: Sequence[tuple[str, str]], model: type[M]) -> M:
        query = f"?{urlencode(pairs)}" if pairs else ""
        if len(query) > MOST_CHARS:
            raise BadValueError(
                f"the question is {len(query):,} characters long: at most {MOST_CHARS:,} reach a "
                "collector; give fewer filters, or a long price table in the collector's own settings"
            )
        body = self._read(f"{self._url}/api/v1{path}{query}")
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise UnavailableError(self._stranger("another kind of answer")) from error

    def _read(self, url: str) -> bytes:
        try:
            with self._opener.open(self._request(url), timeout=self._timeout_s) as reply:
                body: bytes = reply.read(MOST_BYTES + 1)
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(65_536)) from error
        except TimeoutError as error:
            raise UnavailableError(self._late()) from error
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise UnavailableError(self._late()) from error
            raise UnavailableError(self._silent(error.reason)) from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(self._silent(error)) from error
        if len(body) > MOST_BYTES:
            raise UnavailableError(
                f"the answer of {self._url} is larger than {MOST_BYTES >> 20} MiB: choose fewer "
                "requests"
            )
        return body

    def _request(self, url: str) -> Request:
        made = Request(url)  # noqa: S310  http or https, as checked
        if self._token is not None:
            made.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return made

    def _refusal(self, code: int, body: bytes) -> DashboardError:
        try:
            told = json.loads(body)
            return _ERRORS[told["error"]](str(told["detail"]))
        except (ValueError, KeyError, TypeError):
            return UnavailableError(self._stranger(f"HTTP {code}"))

    def _silent(self, reason: object) -> str:
        return (
            f"no collector answers at {self._url} ({reason}): start one with `stagelens collect` "
            "or `stagelens serve`, or name a store with --store"
        )

    def _late(self) -> str:
        return (
            f"the collector at {self._url} did not answer within {self._timeout_s:g} s: choose "
            "fewer requests, or ask again when it is less busy"
        )

    def _stranger(self, what: str) -> str:
        return (
            f"{self._url} is not the API of a Stagelens collector of this version ({what}): give "
            "the address of its API, by default port 8090"
        )


def _by(filters: Filters, by: Sequence[str]) -> list[tuple[str, str]]:
    return [*to_query(filters), *(("by", name) for name in by)]


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise BadValueError(
            f"collector {url!r} is not an address: write it as http://HOST:PORT, "
            "for instance http://127.0.0.1:8090"
        )
    return url.rstrip("/")


def _opener(url: str) -> OpenerDirector:
    """An opener that never sends a question about this machine through a web proxy."""
    host = urlsplit(url).hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    return build_opener(ProxyHandler({})) if local else build_opener()
