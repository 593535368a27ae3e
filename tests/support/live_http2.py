"""A real HTTP/2 server (hypercorn) around an ASGI application, on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from hypercorn.asyncio import serve
from hypercorn.config import Config


class Breaking(asyncio.Protocol):
    """A server that speaks h2 by hand and does ``begin`` when a request is whole."""

    def __init__(self, begin: Callable[[Breaking, int], None] | None) -> None:
        self.wire = H2Connection(H2Configuration(client_side=False))
        self._begin = begin

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.wire.initiate_connection()

    def data_received(self, data: bytes) -> None:
        for event in self.wire.receive_data(data):
            if isinstance(event, StreamEnded) and self._begin is not None:
                self._begin(self, event.stream_id)
        self.transport.write(self.wire.data_to_send())


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
