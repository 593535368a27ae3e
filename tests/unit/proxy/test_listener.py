"""The listening socket's connections send each token at once."""

from __future__ import annotations

import asyncio
import socket

from proxy.server import bind


async def test_small_writes_are_not_held_back_for_an_acknowledgement():
    """Accepted connections have TCP_NODELAY: with Nagle's algorithm a token waits up to 40 ms.

    asyncio sets it only on sockets whose protocol number says TCP; a socket made
    without one accepts connections that say 0.
    """
    made: asyncio.Queue[int] = asyncio.Queue()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            made.put_nowait(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    listener = bind("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(Protocol, sock=listener)
    _, writer = await asyncio.open_connection(*listener.getsockname())
    assert await asyncio.wait_for(made.get(), 5) == 1
    writer.close()
    server.close()
