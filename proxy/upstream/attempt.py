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
from proxy.upstream.connect import ConnectTimeout, NotBegun, Unreachable
from proxy.upstream.headers import CREDENTIALS, request_headers, traceparent
from proxy.upstream.pool import Upstream

USAGE_OPERATIONS = MappingProxyType({"chat": "/chat/completions", "text_completion": "/completions"})


REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
"""Methods that do the same done twice (RFC 9110, 9.2.2)."""


class Unanswered(Exception):
    """An attempt got no response: ``kind`` is the error's type, ``status`` what a client is told.

    ``at_work``: the upstream may have begun with the request. ``stale``: the fault was the
    connection's, which lay idle before or took no more requests, and says nothing of the upstream.
    """

    def __init__(
        self, kind: str, status: int, message: str, at_work: bool = True, stale: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.message = message
        self.at_work = at_work
        self.stale = stale

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
    after_stale: bool = False
    grown: int = 0

    def repeatable(self, at_work: bool) -> bool:
        """It can be sent again, and that does nothing twice that must be done once.

        ``at_work``: an upstream may have begun with it. What the routes with a name do may
        be done again; what another POST does is not known.
        """
        if self.body is not None and not self.body.replayable and self.body.begun:
            return False
        harmless = self.scope["method"] in REPEATABLE or self.scope.get("route") is not None
        return harmless or not at_work

    @property
    def fresh(self) -> bool:
        """What cannot be sent again goes on no connection that may be closed by now."""
        whole = self.body is None or self.body.replayable
        return self.after_stale or not (whole and self.repeatable(at_work=True))

    def data_for(self, upstream: Upstream) -> bytes | AsyncIterator[bytes] | None:
        """The body for ``upstream``: replayable ones whole, with alias and usage written in."""
        if self.body is None:
            return None
        head = self._renamed(self.body.head, upstream)
        if not self.body.replayable:
            self.grown = len(head) - len(self.body.head)
            return self.body.stream(head)
        self.cut_usage = False
        if self.ask_usage and self.asked.json and self.asked.stream and self._has_usage_option():
            asking = with_usage(head)
            self.cut_usage = asking is not None
            head = head if asking is None else asking
        return head

    def _renamed(self, head: bytes, upstream: Upstream) -> bytes:
        asked = self.asked
        known_as = upstream.target.models.get(asked.model, asked.model)
        return head if known_as == asked.model else with_model(head, asked, known_as)

    def _has_usage_option(self) -> bool:
        suffix = USAGE_OPERATIONS.get(self.operation)
        path: str = self.scope["path"]
        return suffix is not None and path.endswith(suffix)

    def headers_for(
        self, upstream: Upstream, span_id: int, data: bytes | AsyncIterator[bytes] | None
    ) -> list[tuple[str, str]]:
        """A body at hand gets its own length; without one the client's ``0`` goes on."""
        drop: set[bytes] = {b"content-length"} if isinstance(data, bytes) else set()
        if upstream.credential is not None or self.hide_credentials:
            drop |= CREDENTIALS
        if upstream.target.strip_baggage:
            drop.add(b"baggage")
        if self.cut_usage:
            drop.add(b"accept-encoding")
        trace = self.trace
        header = traceparent(trace.trace_id, span_id, trace.flags)
        made = request_headers(self.scope["headers"], header, drop, trace.joined)
        if self.grown and not isinstance(data, bytes):
            made = [(n, _longer(v, self.grown) if n.lower() == "content-length" else v) for n, v in made]
        if self.cut_usage:
            made = [(n, v) for n, v in made if n.lower() != "accept-encoding"]
            made.append(("accept-encoding", "identity"))
        if upstream.credential is not None:
            made.append((upstream.credential.header, upstream.credential.value))
        return made


def _longer(length: str, by: int) -> str:
    """The length of a body whose model has another name upstream."""
    return str(int(length) + by)


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
    headers = out.headers_for(upstream, span_id, data)
    raw_path = out.scope.get("raw_path") or out.scope["path"].encode()
    url = upstream.url(raw_path.decode("latin-1"), out.scope["query_string"].decode("latin-1"))
    try:
        return await client.open(
            out.scope["method"], url, headers, data, call.connection,
            verify=upstream.target.verify_tls, http2=upstream.target.http2, fresh=out.fresh,
        )  # fmt: skip
    except Exception as problem:
        if out.body is not None and out.body.refusal is not None:
            raise out.body.refusal from None
        if out.body is not None and out.body.left:
            raise ClientLeft from None
        if isinstance(problem, ClientLeft | Refusal):
            raise
        raise why(problem, upstream.label, bool(call.connection.reused)) from None


def why(problem: Exception, label: str, reused: bool) -> Unanswered:
    """What ``problem`` means; its own text may hold an address with a secret and is not used."""
    if isinstance(problem, ConnectTimeout):
        return Unanswered(
            "upstream_connect_timeout", 504, f"no connection to the upstream {label} in time",
            at_work=False,
        )
    if isinstance(problem, Unreachable):
        return Unanswered(
            "upstream_unreachable", 502, f"the upstream {label} cannot be reached", at_work=False
        )
    if isinstance(problem, ConnectionError):
        begun = not isinstance(problem, NotBegun)
        return Unanswered(
            "upstream_disconnect", 502, f"the upstream {label} hung up without an answer",
            at_work=begun, stale=reused or not begun,
        )
    if isinstance(problem, ValueError):
        return Unanswered(
            "upstream_bad_response", 502, f"the upstream {label} did not answer in HTTP"
        )
    raise problem
