"""HTTP/2 connections by upstream: shared by many requests, opened and closed as needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from proxy.upstream.call import ConnectionMarks
from proxy.upstream.connect import Dialer, Origin, divided
from proxy.upstream.http2 import Http2Connection, Http2Response
from tracer.clock import Clock


class NotHttp2(Exception):
    """The upstream's TLS chose HTTP/1.1."""


class Http2Pool:
    """All HTTP/2 connections of a proxy. Used from the event loop only."""

    def __init__(self, clock: Clock, connect_timeout_s: float | None, idle_s: float) -> None:
        self._dialer = Dialer(clock, connect_timeout_s, ("h2", "http/1.1"))
        self._idle_s = idle_s
        self._connections: dict[Origin, list[Http2Connection]] = {}
        self._opening: dict[Origin, asyncio.Lock] = {}
        self._timers: dict[Http2Connection, asyncio.TimerHandle] = {}
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
        origin, host, target = divided(url, verify)
        if origin in self._without:
            raise NotHttp2
        connection = await self._connection(origin, marks)
        fields = [
            (b":method", method.encode()), (b":scheme", origin[0].encode()),
            (b":authority", host.encode()), (b":path", target.encode("latin-1")),
            *((n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers),
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
                free = await self._connect(origin, marks)
                held.append(free)
            if (timer := self._timers.pop(free, None)) is not None:
                timer.cancel()
            return free

    async def _connect(self, origin: Origin, marks: ConnectionMarks) -> Http2Connection:
        transport, connection = await self._dialer.connect(
            origin, marks, lambda: Http2Connection(self._idle)
        )
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
