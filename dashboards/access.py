"""Who may ask: a bearer token before every figure, compared in constant time."""

from __future__ import annotations

import hmac
import json
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


class TokenGate:
    """Pure ASGI around the API; 401 without the token. It logs nothing of what was sent."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._open(scope["path"]) or self._known(scope):
            await self._app(scope, receive, send)
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"www-authenticate", b'Bearer realm="stagelens"'),
            (b"content-length", str(len(_REFUSED)).encode()),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": _REFUSED})

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
