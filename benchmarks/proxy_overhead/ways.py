"""The ways to forward a stream that the proxy could have been built on, bare: no trace, no rules.

``ways.py CLIENT ANSWER URL PORT`` serves one: CLIENT is ``aiohttp`` or ``httpx``, ANSWER is
``asgi`` (plain ``send``) or ``fastapi`` (a route with its ``StreamingResponse``).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

WAYS = {
    "aiohttp and plain ASGI": ("aiohttp", "asgi"),
    "httpx and plain ASGI": ("httpx", "asgi"),
    "aiohttp and FastAPI": ("aiohttp", "fastapi"),
}
JSON = {"content-type": "application/json"}
HEAD = {"type": "http.response.start", "status": 200,
        "headers": [(b"content-type", b"text/event-stream")]}  # fmt: skip


class Aiohttp:
    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def parts(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        async with self._session.post(self._url + path, data=body, headers=JSON) as answer:
            async for part in answer.content.iter_any():
                yield part


class Httpx:
    def __init__(self, url: str) -> None:
        self._url = url
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(timeout=None, limits=limits)

    async def parts(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._client.stream(
            "POST", self._url + path, content=body, headers=JSON
        ) as answer:
            async for part in answer.aiter_raw():
                yield part


def by_asgi(client: Aiohttp | Httpx) -> Any:  # noqa: ANN401  an ASGI application
    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        await send(HEAD)
        async for part in client.parts(scope["path"], body):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def by_fastapi(client: Aiohttp | Httpx) -> Any:  # noqa: ANN401
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def forward(path: str, request: Request) -> StreamingResponse:
        parts = client.parts(f"/{path}", await request.body())
        return StreamingResponse(parts, media_type="text/event-stream")

    return app


def main() -> None:
    client_name, answer, url, port = sys.argv[1:]
    client = Aiohttp(url) if client_name == "aiohttp" else Httpx(url)
    app = {"asgi": by_asgi, "fastapi": by_fastapi}[answer](client)
    uvicorn.run(app, host="127.0.0.1", port=int(port), loop="uvloop", http="httptools",
                lifespan="off", access_log=False, log_level="error")  # fmt: skip


if __name__ == "__main__":
    main()
