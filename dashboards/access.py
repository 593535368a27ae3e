"""Who may ask: a bearer token before every figure, compared in constant time; or by which name."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

OPEN: Final = frozenset({"/", "/api/v1/health"})
OPEN_PREFIX: Final = "/web/"
"""The page itself holds no figure; it has to be there to ask for the token."""
_REFUSED: Final = json.dumps(
    {
        "error": "unauthorized",
        "detail": "this API asks for a token: send it as `Authorization: Bearer TOKEN`, "
        "set STAGELENS_API_TOKEN for the command line, or open the page with #token=TOKEN",
    }
).encode()


_STRANGE: Final = json.dumps(
    {
        "error": "unknown_host",
        "detail": "this API has no token and is asked by a name that is not this machine's: a page of "
        "another site could read it so. Ask it by address or as localhost, name the host in the "
        "setting `api.hosts`, or give the API a token",
    }
).encode()


async def _refuse(send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class HostGate:
    """Pure ASGI around an API without a token; 403 where ``Host`` is another site's name.

    A page of any site may ask a loopback address by a name of its own whose address it changes
    meanwhile (DNS rebinding), and read the answer. An address, a name without a dot and
    ``*.localhost`` cannot be such a name; ``hosts`` are those that the user named.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(_plain(host) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._known(scope):
            await self._app(scope, receive, send)
            return
        await _refuse(send, 403, _STRANGE)

    def _known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if not given:
            return True  # HTTP/1.0: no browser leaves it out
        host = _host_of(given[0].decode("latin-1"))
        return len(given) == 1 and (
            "." not in host or host.endswith(".localhost") or host in self._hosts or _is_address(host)
        )


def _host_of(told: str) -> str:
    """The name of a Host header, without its port; brackets of an IPv6 address are taken off."""
    if not told.startswith("["):
        return _plain(told.partition(":")[0])
    address, _, rest = told[1:].partition("]")
    return address if rest[:1] in ("", ":") else told


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class TokenGate:
    """Pure ASGI around the API; 401 without the token. It logs nothing of what was sent."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._open(scope["path"]) or self._known(scope):
            await self._app(scope, receive, send)
            return
        await _refuse(send, 401, _REFUSED, (b"www-authenticate", b'Bearer realm="stagelens"'))

    @staticmethod
    def _open(path: str) -> bool:
        return path in OPEN or path.startswith(OPEN_PREFIX)

    def _known(self, scope: Scope) -> bool:
        """Digests are compared, so that neither the place of a difference nor a length shows."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        kind, _, token = given[0].partition(b" ")
        same = hmac.compare_digest(sha256(token.strip()).digest(), self._digest)
        return same and kind.lower() == b"bearer"
