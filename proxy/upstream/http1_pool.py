"""HTTP/1.1 connections by upstream: kept while they idle, one request at a time on each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from proxy.upstream.call import ConnectionMarks
from proxy.upstream.connect import Dialer, Origin, divided
from proxy.upstream.http1 import Http1Connection, Http1Response
from tracer.clock import Clock

_BREAKS = re.compile("[\r\n\0]")


class Http1Pool:
    """All HTTP/1.1 connections of a proxy. Used from the event loop only."""

    def __init__(self, clock: Clock, connect_timeout_s: float | None, idle_s: float) -> None:
        self._dialer = Dialer(clock, connect_timeout_s, ("http/1.1",))
        self._idle_s = idle_s
        self._idle: dict[Origin, list[Http1Connection]] = {}
        self._timers: dict[Http1Connection, asyncio.TimerHandle] = {}

    async def request(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        data: bytes | AsyncIterator[bytes] | None,
        marks: ConnectionMarks,
        verify: bool,
        fresh: bool,
    ) -> Http1Response:
        """Send a request and wait for the response's head; ``fresh``: on a connection of its own.

        Raises:
            ConnectTimeout, Unreachable: no connection came about.
            ConnectionError: it broke before the head.
            ValueError: the answer is no HTTP, or a header cannot be written.
        """
        origin, host, target = divided(url, verify)
        chunked = data is not None and not (
            isinstance(data, bytes) or any(name.lower() == "content-length" for name, _ in headers)
        )
        head = _head(method, target, host, headers, data, chunked)
        connection = await self._connection(origin, marks, fresh)
        return await connection.request(method, head, data, chunked)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for held in self._idle.values():
            for connection in held:
                connection.close()
        self._idle.clear()
        self._timers.clear()

    async def _connection(
        self, origin: Origin, marks: ConnectionMarks, fresh: bool
    ) -> Http1Connection:
        held = self._idle.setdefault(origin, [])
        while held and not fresh:
            connection = held.pop()
            self._timers.pop(connection).cancel()
            if connection.usable:
                marks.reused = True
                return connection
        marks.reused = False
        _, connection = await self._dialer.connect(
            origin, marks, lambda: Http1Connection(lambda c: self._keep(c, origin))
        )
        return connection

    def _keep(self, connection: Http1Connection, origin: Origin) -> None:
        self._idle.setdefault(origin, []).append(connection)
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._idle_s, self._expire, connection, origin)

    def _expire(self, connection: Http1Connection, origin: Origin) -> None:
        del self._timers[connection]
        self._idle[origin].remove(connection)
        connection.close()


def _head(
    method: str,
    target: str,
    host: str,
    headers: list[tuple[str, str]],
    data: bytes | AsyncIterator[bytes] | None,
    chunked: bool,
) -> bytes:
    """Request line and headers; bytes that no header may hold are refused, not sent."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if isinstance(data, bytes):
        lines.append(f"Content-Length: {len(data)}")
    elif chunked:
        lines.append("Transfer-Encoding: chunked")
    if _BREAKS.search("".join(lines)):
        raise ValueError("a header holds a line break")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
