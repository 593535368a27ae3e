"""HTTP for MCP servers: no answer longer than allowed, no name that leads to a hidden host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

from proxy.pipelines.web import is_ip, is_public

CONNECT_S = 30.0
READ_S = 300.0
"""A server may hold a stream open; each call has a time-out of its own."""


@dataclass(slots=True)
class Watch:
    """What the transport saw of one call."""

    too_large: bool = False
    host_refused: bool = False


WATCH: ContextVar[Watch | None] = ContextVar("stagelens_mcp_watch", default=None)
"""Set by a call before it asks: the client runs the call's POST in a copy of its context."""


def make_client(
    headers: dict[str, str], most_bytes: int, private_hosts: Collection[str]
) -> httpx2.AsyncClient:
    """A client for one MCP server; redirects are the MCP client's, which stays within the origin."""
    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
        trust_env=False,
        transport=_Guarded(most_bytes, private_hosts),
    )


class _Guarded(httpx2.AsyncBaseTransport):
    """Connects to the very address that was checked, and counts what answers to a POST."""

    def __init__(self, most_bytes: int, private_hosts: Collection[str]) -> None:
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._most = most_bytes
        self._named = frozenset(h.lower() for h in private_hosts) | {"localhost"}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        if not is_ip(host) and host.lower() not in self._named:
            address = await self._checked(host, request.url.port or 0)
            request.extensions = {**request.extensions, "sni_hostname": host}
            request.url = request.url.copy_with(host=address)
        answer = await self._inner.handle_async_request(request)
        if request.method == "POST" and isinstance(answer.stream, httpx2.AsyncByteStream):
            answer.stream = _Counted(answer.stream, self._most)
        return answer

    async def _checked(self, host: str, port: int) -> str:
        """An address of ``host``; ConnectError where one of them is not public."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise httpx2.ConnectError(f"host {host} is not known") from problem
        addresses = [str(one[4][0]) for one in found]
        if not all(is_public(address) for address in addresses):
            if (watch := WATCH.get()) is not None:
                watch.host_refused = True
            raise httpx2.ConnectError(f"host {host} has an address that is not public")
        return addresses[0]

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > self._most:
                if (watch := WATCH.get()) is not None:
                    watch.too_large = True
                raise httpx2.StreamError(f"the answer is longer than {self._most} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
