"""Opening a request at one upstream, and what each way of failing means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import MappingProxyType

from proxy.middleware import Scope
from proxy.upstream.answers import Refusal
from proxy.upstream.body import Asked, ClientLeft, RequestBody, with_model, with_usage
from proxy.upstream.call import UpstreamCall
from proxy.upstream.client import Response, UpstreamClient
from proxy.upstream.connect import ConnectTimeout, Unreachable
from proxy.upstream.headers import CREDENTIALS, request_headers, traceparent
from proxy.upstream.pool import Upstream

USAGE_OPERATIONS = MappingProxyType({"chat": "/chat/completions", "text_completion": "/completions"})


class Unanswered(Exception):
    """An attempt got no response: ``kind`` is the error's type, ``status`` what a client is told."""

    def __init__(self, kind: str, status: int, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.message = message

    def refusal(self) -> Refusal:
        return Refusal(self.status, self.kind, self.message)


@dataclass(frozen=True, slots=True)
class Trace:
    """What of the trace goes on: ``joined`` is False where the caller's context was bad."""

    trace_id: int
    flags: int
    joined: bool


@dataclass(slots=True)
class Outgoing:
    """One request as it goes to whichever upstream; made once, sent at each attempt."""

    scope: Scope
    body: RequestBody | None
    asked: Asked
    operation: str
    trace: Trace
    ask_usage: bool
    hide_credentials: bool
    cut_usage: bool = False

    def data_for(self, upstream: Upstream) -> bytes | AsyncIterator[bytes] | None:
        """The body for ``upstream``: replayable ones whole, with alias and usage written in."""
        if self.body is None:
            return None
        if not self.body.replayable:
            return self.body.stream()
        try:
            return self._rewritten(self.body.head, upstream)
        except ValueError:
            return self.body.head

    def _rewritten(self, body: bytes, upstream: Upstream) -> bytes:
        if not self.asked.json:
            return body
        known_as = upstream.target.models.get(self.asked.model, self.asked.model)
        if known_as != self.asked.model:
            body = with_model(body, known_as)
        self.cut_usage = False
        if self.ask_usage and self.asked.stream and self._has_usage_option():
            asking = with_usage(body)
            self.cut_usage = asking is not None
            body = body if asking is None else asking
        return body

    def _has_usage_option(self) -> bool:
        suffix = USAGE_OPERATIONS.get(self.operation)
        path: str = self.scope["path"]
        return suffix is not None and path.endswith(suffix)

    def headers_for(
        self, upstream: Upstream, span_id: int, streamed: bool
    ) -> list[tuple[str, str]]:
        drop: set[bytes] = set() if streamed else {b"content-length"}
        if upstream.credential is not None or self.hide_credentials:
            drop |= CREDENTIALS
        if upstream.target.strip_baggage:
            drop.add(b"baggage")
        if self.cut_usage:
            drop.add(b"accept-encoding")
        trace = self.trace
        header = traceparent(trace.trace_id, span_id, trace.flags)
        made = request_headers(self.scope["headers"], header, drop, trace.joined)
        if self.cut_usage:
            made = [(n, v) for n, v in made if n.lower() != "accept-encoding"]
            made.append(("accept-encoding", "identity"))
        if upstream.credential is not None:
            made.append((upstream.credential.header, upstream.credential.value))
        return made


async def open_attempt(
    client: UpstreamClient, out: Outgoing, upstream: Upstream, call: UpstreamCall, span_id: int
) -> Response:
    """The upstream's response, its body still to come.

    Raises:
        Unanswered: it gave none.
        Refusal: the request's body went over the limit on the way.
        ClientLeft: the client left before its body was whole.
    """
    data = out.data_for(upstream)
    streamed = data is not None and not isinstance(data, bytes)
    headers = out.headers_for(upstream, span_id, streamed)
    raw_path = out.scope.get("raw_path") or out.scope["path"].encode()
    url = upstream.url(raw_path.decode("latin-1"), out.scope["query_string"].decode("latin-1"))
    try:
        return await client.open(
            out.scope["method"], url, headers, data, call.connection,
            verify=upstream.target.verify_tls, http2=upstream.target.http2,
        )  # fmt: skip
    except Exception as problem:
        if out.body is not None and out.body.refusal is not None:
            raise out.body.refusal from None
        if out.body is not None and out.body.left:
            raise ClientLeft from None
        if isinstance(problem, ClientLeft | Refusal):
            raise
        raise why(problem, upstream.label) from None


def why(problem: Exception, label: str) -> Unanswered:
    """What ``problem`` means; its own text may hold an address with a secret and is not used."""
    if isinstance(problem, ConnectTimeout):
        return Unanswered(
            "upstream_connect_timeout", 504, f"no connection to the upstream {label} in time"
        )
    if isinstance(problem, Unreachable):
        return Unanswered("upstream_unreachable", 502, f"the upstream {label} cannot be reached")
    if isinstance(problem, ConnectionError):
        return Unanswered(
            "upstream_disconnect", 502, f"the upstream {label} hung up without an answer"
        )
    if isinstance(problem, ValueError):
        return Unanswered(
            "upstream_bad_response", 502, f"the upstream {label} did not answer in HTTP"
        )
    raise problem
