"""A real HTTP/2 server (hypercorn) around an ASGI application, on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config


@asynccontextmanager
async def live_http2(
    app: Callable[..., Any], cert: tuple[Path, Path] | None = None, alpn: tuple[str, ...] = ("h2",)
) -> AsyncIterator[str]:
    """The server's URL. Without ``cert`` it takes HTTP/2 from the first byte."""
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{sock.fileno()}"]
    config.alpn_protocols = list(alpn)
    config.graceful_timeout = 1
    config.errorlog = config.accesslog = None
    if cert is not None:
        config.certfile, config.keyfile = str(cert[0]), str(cert[1])
    stop = asyncio.Event()
    task = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    try:
        yield f"{'https' if cert else 'http'}://localhost:{port}"
    finally:
        stop.set()
        await asyncio.wait({task}, timeout=10)
        sock.detach()
