"""What the plain application is asked on behalf of a client."""

from __future__ import annotations

from proxy.middleware import Scope
from proxy.protocol import ENTERED

_OWN = frozenset({
    b"content-length", b"transfer-encoding", b"accept-encoding", b"content-encoding",
    b"content-type", b"content-md5", b"digest", b"content-digest", b"repr-digest",
})  # fmt: skip
"""Headers that speak of the client's own body, or of what we read of the answer."""
_ONCE = frozenset({b"x-request-id", b"idempotency-key"})
"""Headers that name one request: the same again would be refused, or answered as before."""


def inner_scope(scope: Scope, size: int, number: int) -> Scope:
    """The scope of an inner request: the client's, with the proxy's own body."""
    headers = [(n, v) for n, v in scope["headers"] if n.lower() not in _OWN]
    headers = [
        (n, v + b"-r%d" % number if n.lower() in _ONCE and number > 1 else v) for n, v in headers
    ]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
    extensions = {**scope.get("extensions", {}), ENTERED: True}
    return {**scope, "headers": headers, "extensions": extensions}
