"""Which headers cross the proxy, and the trace context that goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Headers = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
OURS = frozenset({b"host", b"expect", b"traceparent"})
"""Of a request: the address is the upstream's, the server answered 100 itself, the span is ours."""
CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})


def _named_by_connection(headers: Headers) -> set[bytes]:
    named: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            named |= {token.strip().lower() for token in value.split(b",")}
    return named


def value_of(headers: Headers, name: bytes) -> bytes | None:
    """The first value of ``name`` (lower case)."""
    return next((value for key, value in headers if key.lower() == name), None)


def request_headers(
    headers: Headers, traceparent: str, drop: Iterable[bytes], joined: bool
) -> list[tuple[str, str]]:
    """What goes upstream: hop-by-hop headers dropped, our ``traceparent``, the rest as it came.

    ``joined``: the caller's trace context was good; if it was not, its ``tracestate``
    belongs to nothing and is dropped. A client that named no encoding gets none.
    """
    unwanted = HOP_BY_HOP | OURS | _named_by_connection(headers) | set(drop)
    if not joined:
        unwanted |= {b"tracestate"}
    kept = [(_text(n), _text(v)) for n, v in headers if n.lower() not in unwanted]
    kept.append(("traceparent", traceparent))
    if value_of(headers, b"accept-encoding") is None:
        kept.append(("accept-encoding", "identity"))
    return kept


def response_headers(headers: Headers, drop: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """What goes to the client: all but the hop-by-hop headers, duplicates included."""
    unwanted = HOP_BY_HOP | _named_by_connection(headers) | set(drop)
    return [(n, v) for n, v in headers if n.lower() not in unwanted]


def traceparent(trace_id: int, span_id: int, flags: int) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & 1:02x}"


def _text(raw: bytes) -> str:
    """One letter a byte, so that what is written is what was read."""
    return raw.decode("latin-1")
