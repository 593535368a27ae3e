"""One POST of a body to an OTLP receiver, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

if TYPE_CHECKING:
    from ssl import SSLContext
    from urllib.request import OpenerDirector

RETRYABLE_STATUS = frozenset({429, 502, 503, 504})
"""The only statuses a sender may retry (OTLP specification, "Failures")."""


class Verdict(Enum):
    """What became of one POST."""

    TAKEN = "taken"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reply:
    """``rejected`` items of a taken body were refused; ``retry_after_s`` is the peer's wish."""

    verdict: Verdict
    rejected: int = 0
    retry_after_s: float | None = None
    detail: str = ""
    too_large: bool = False


class Poster:
    """Sends protobuf bodies with ``headers``; by one thread, which it holds up.

    A redirect is a refusal: following one would send the headers to another host, and the
    body nowhere. A loopback address is never asked through a proxy. ``compressed``: with gzip.
    """

    def __init__(
        self, headers: Mapping[str, str], tls: SSLContext | None = None, *, compressed: bool = False
    ) -> None:
        encoding = {"Content-Encoding": "gzip"} if compressed else {}
        self._headers = {"Content-Type": "application/x-protobuf", **encoding, **headers}
        self._compressed, self._tls = compressed, tls
        self._openers: dict[bool, OpenerDirector] = {}

    def post(self, url: str, body: bytes, timeout_s: float) -> Reply:
        """Send one body; never raises."""
        import urllib.error  # with TLS and the HTTP client it is most of what importing this costs
        import urllib.request
        from http.client import HTTPException

        try:
            data = _compressed(body) if self._compressed else body
            request = urllib.request.Request(url, data, self._headers)  # noqa: S310  the operator's own
            with self._opener(url).open(request, timeout=timeout_s) as answer:
                kind = answer.headers.get_content_type()
                if kind == "text/html":
                    return Reply(Verdict.REFUSED, detail="a page of HTML: no OTLP receiver is there")
                return _taken(url, answer.read(4 << 20))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return _refused(refusal.code, refusal.headers.get("Retry-After"))
        except (OSError, ValueError, HTTPException) as problem:
            return Reply(Verdict.RETRY, detail=type(problem).__name__)
        except Exception as problem:  # noqa: BLE001  or the sending thread would end
            return Reply(Verdict.REFUSED, detail=type(problem).__name__)

    def _opener(self, url: str) -> OpenerDirector:
        near = _is_loopback(urlsplit(url).hostname or "")
        if near not in self._openers:
            self._openers[near] = _opener(self._tls, direct=near)
        return self._openers[near]


def _opener(tls: SSLContext | None, *, direct: bool) -> OpenerDirector:
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    handlers: list[Any] = [NoRedirects()]
    if direct:
        handlers.append(urllib.request.ProxyHandler({}))
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    return urllib.request.build_opener(*handlers)


def _compressed(body: bytes) -> bytes:
    import gzip

    return gzip.compress(body, 1)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _refused(code: int, retry_after: str | None) -> Reply:
    if code in RETRYABLE_STATUS:
        return Reply(Verdict.RETRY, retry_after_s=_seconds(retry_after), detail=f"HTTP {code}")
    too_large = code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return Reply(Verdict.REFUSED, detail=f"HTTP {code}", too_large=too_large)


def _taken(url: str, answer: bytes) -> Reply:
    kind = ExportLogsServiceResponse if url.endswith("/v1/logs") else ExportTraceServiceResponse
    try:
        partial = kind.FromString(answer).partial_success
    except DecodeError:
        return Reply(Verdict.TAKEN)
    rejected = getattr(partial, "rejected_spans", 0) or getattr(partial, "rejected_log_records", 0)
    return Reply(Verdict.TAKEN, rejected=int(rejected), detail=partial.error_message)


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None
