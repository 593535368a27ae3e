"""HEAD: what GET would answer, without the body."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BODY: Final = "http.response.body"


class HeadAsGet:
    """Pure ASGI: a HEAD is asked as a GET, so that its status and headers are the same."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headers_alone(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == _BODY else message)

        await self._app({**scope, "method": "GET"}, receive, headers_alone)
