"""HTTP/2 connections by upstream: shared by many requests, opened and closed as needed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from proxy.upstream.call import ConnectionMarks
from proxy.upstream.http2 import Http2Connection, Http2Response
from tracer.clock import Clock

Origin = tuple[str, str, int, bool]


class NotHttp2(Exception):
    """The upstream's TLS chose HTTP/1.1."""


class ConnectTimeout(Exception):
    """No connection within the limit."""


class Unreachable(Exception):
    """No connection: the name, the address, the port or the certificate is wrong."""


class Http2Pool:
    """All HTTP/2 connections of a proxy. Used from the event loop only."""

    def __init__(self, clock: Clock, connect_timeout_s: float | None, idle_s: float) -> None:
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._connections: dict[Origin, list[Http2Connection]] = {}
        self._opening: dict[Origin, asyncio.Lock] = {}
        self._timers: dict[Http2Connection, asyncio.TimerHandle] = {}
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._without: set[Origin] = set()

    async def request(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        data: bytes | AsyncIterator[bytes] | None,
        marks: ConnectionMarks,
        verify: bool,
    ) -> Http2Response:
        """Send a request and wait for the response's head.

        Raises:
            NotHttp2, ConnectTimeout, Unreachable: no HTTP/2 connection came about.
            ConnectionError: it broke before the head.
        """
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        origin = (parts.scheme, parts.hostname or "", port, verify)
        if origin in self._without:
            raise NotHttp2
        connection = await self._connection(origin, marks)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        fields = [
            (b":method", method.encode()), (b":scheme", parts.scheme.encode()),
            (b":authority", parts.netloc.encode()), (b":path", path.encode("latin-1") or b"/"),
            *((n.lower().encode("latin-1"), v.encode()) for n, v in headers),
        ]  # fmt: skip
        return await connection.request(fields, data)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for held in self._connections.values():
            for connection in held:
                connection.close()
        self._connections.clear()

    async def _connection(self, origin: Origin, marks: ConnectionMarks) -> Http2Connection:
        """One that takes another request, or a new one; requests that come at once share it."""
        async with self._opening.setdefault(origin, asyncio.Lock()):
            held = self._connections.setdefault(origin, [])
            held[:] = [c for c in held if not c.closed]
            free = min((c for c in held if c.usable), key=lambda c: c.streams, default=None)
            marks.reused = free is not None
            if free is None:
                try:
                    async with asyncio.timeout(self._connect_timeout_s):
                        free = await self._connect(origin, marks)
                except TimeoutError:
                    raise ConnectTimeout from None
                except (OSError, ssl.SSLError):
                    raise Unreachable from None
                held.append(free)
            if (timer := self._timers.pop(free, None)) is not None:
                timer.cancel()
            return free

    async def _connect(self, origin: Origin, marks: ConnectionMarks) -> Http2Connection:
        scheme, host, port, verify = origin
        loop = asyncio.get_running_loop()
        now = self._clock.mono_ns
        marks.began_mono_ns = now()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        marks.dns_ns = now() - marks.began_mono_ns
        sock = await _first_that_answers(loop, found)
        marks.tcp_done_mono_ns = now()
        marks.tls = scheme == "https"
        context = None
        if marks.tls and (context := self._contexts.get(verify)) is None:
            context = self._contexts[verify] = _tls(verify)
        transport, connection = await loop.create_connection(
            lambda: Http2Connection(self._idle), sock=sock, ssl=context,
            server_hostname=host if context else None,
        )  # fmt: skip
        marks.connected_mono_ns = now()
        chosen = transport.get_extra_info("ssl_object")
        if chosen is not None and chosen.selected_alpn_protocol() != "h2":
            transport.abort()
            self._without.add(origin)
            raise NotHttp2
        return connection

    def _idle(self, connection: Http2Connection) -> None:
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._idle_s, self._expire, connection)

    def _expire(self, connection: Http2Connection) -> None:
        self._timers.pop(connection, None)
        if not connection.streams:
            connection.close()


async def _first_that_answers(
    loop: asyncio.AbstractEventLoop, found: Sequence[tuple[int, int, int, str, Any]]
) -> socket.socket:
    problem: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(sock, address)
        except OSError as why:
            sock.close()
            problem = why
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def _tls(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
