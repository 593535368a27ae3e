"""HTTP to upstreams: pooled connections, raw bytes both ways, every step stamped.

Bodies are never unpacked here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from proxy.upstream.call import ConnectionMarks
from proxy.upstream.http1_pool import Http1Pool
from proxy.upstream.http2_pool import Http2Pool, NotHttp2
from tracer.clock import Clock


class Body(Protocol):
    """The body of a response, part by part as it comes.

    A part that ``taker`` takes at once (it says ``True``) is not among those iterated.
    ``lane`` is asked before it for parts that came as whole chunks, and gets both.
    """

    def iter_any(
        self,
        taker: Callable[[bytes], bool] | None = None,
        lane: Callable[[list[bytes], bytes], bool] | None = None,
    ) -> AsyncIterator[bytes]: ...


class Response(Protocol):
    """What is needed of an upstream's response, HTTP/1.1 or HTTP/2.

    ``close`` leaves it and stops the upstream; ``release`` gives a whole one's
    connection back.
    """

    @property
    def status(self) -> int: ...

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]: ...

    @property
    def content(self) -> Body: ...

    def close(self) -> object: ...

    def release(self) -> object: ...


class UpstreamClient:
    """The pools of connections for all upstreams."""

    def __init__(self, clock: Clock, connect_timeout_s: float | None, idle_s: float) -> None:
        self._http1 = Http1Pool(clock, connect_timeout_s, idle_s)
        self._http2 = Http2Pool(clock, connect_timeout_s, idle_s)

    def close(self) -> None:
        self._http1.close()
        self._http2.close()

    async def open(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        data: bytes | AsyncIterator[bytes] | None,
        marks: ConnectionMarks,
        *,
        verify: bool,
        http2: bool,
        fresh: bool = False,
    ) -> Response:
        """Send a request and wait for the response's head; raises what the pools raise.

        ``fresh``: not on an HTTP/1.1 connection that lay idle and may be closed by now.
        An upstream that was to speak HTTP/2 and chose HTTP/1.1 in TLS is spoken to in that.
        """
        if http2:
            try:
                return await self._http2.request(method, url, headers, data, marks, verify)
            except NotHttp2:
                pass
        return await self._http1.request(method, url, headers, data, marks, verify, fresh)
