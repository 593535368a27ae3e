"""uvicorn's HTTP protocol with two stamps added: first byte in, connection lost."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from proxy.arrival import StampedReading, stamped
from tracer.clock import SystemClock

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION = "stagelens.connection"
"""Key in ``scope["extensions"]`` under which a request finds its :class:`ConnectionMarks`."""

ENTERED = "stagelens.entered"
"""Key in ``scope["extensions"]``: this request was let in before, by the pipeline around it."""


class ConnectionMarks:
    """When a request's first byte was read, and when its connection broke, if it did."""

    __slots__ = ("_flow", "abort", "close", "cycle", "first_byte_mono_ns", "lost_mono_ns", "on_lost")

    def __init__(
        self,
        first_byte_mono_ns: int,
        flow: FlowControl | None = None,
        close: Callable[[], None] = lambda: None,
        abort: Callable[[], None] = lambda: None,
    ) -> None:
        """``close`` ends the connection after what is written, ``abort`` at once."""
        self.abort = abort
        self.close = close
        self.first_byte_mono_ns = first_byte_mono_ns
        self._flow = flow
        self.cycle: RequestResponseCycle | None = None
        self.lost_mono_ns: int | None = None
        self.on_lost: Callable[[], None] | None = None

    @property
    def writing_waits(self) -> bool:
        """The client reads too slowly: a write now waits until it has taken more."""
        return self._flow is not None and self._flow.write_paused

    def chunk_writer(self) -> Callable[[bytes], object] | None:
        """Writes whole chunks, framed already, to the client: what the server's ``send`` does.

        None where the answer's head has not been sent, or said that no chunks follow, or where
        uvicorn is not as it was known. Not to be used while ``writing_waits``, when the
        connection is lost, or after the last part.
        """
        cycle = self.cycle
        if cycle is None:
            return None
        try:
            begun = cycle.response_started and not cycle.response_complete
            if begun and cycle.chunked_encoding is True and cycle.scope["method"] != "HEAD":
                return cycle.transport.write
        except AttributeError:
            pass
        return None

    @property
    def knows_chunks(self) -> bool:
        """The client speaks HTTP/1.1, or nobody can tell."""
        return self.cycle is None or self.cycle.scope["http_version"] != "1.0"

    def unframe(self) -> None:
        """Let the body end with the connection, for a client that knows no chunks.

        To be said before an answer's head that tells no length; :meth:`end_unframed` is due
        before the last part.
        """
        if self.cycle is not None:
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = sys.maxsize

    def end_unframed(self) -> None:
        if self.cycle is not None:
            self.cycle.expected_content_length = 0

    def lose(self, mono_ns: int) -> None:
        """The connection is gone; told once."""
        if self.lost_mono_ns is None:
            self.lost_mono_ns = mono_ns
            if self.on_lost is not None:
                self.on_lost()


def run_now(sending: Awaitable[None]) -> None:
    """Run an ASGI ``send`` outside a task; uvicorn's suspends only while ``writing_waits``."""
    steps = sending.__await__()
    try:
        next(steps)
    except StopIteration:
        return
    raise RuntimeError("the server's send waits although the client takes what is written")


for _status in range(600, 1000):  # no status of HTTP, but servers have them, and clients get them
    STATUS_LINE.setdefault(_status, b"HTTP/1.1 %d \r\n" % _status)


class StampingProtocol(HttpToolsProtocol):
    """Stamps each request at its first byte, before any of it is parsed.

    ASGI starts an application only once the headers are whole, so a slow upload of
    headers or a busy event loop would go unseen.
    """

    clock: SystemClock = SystemClock()
    _waiting: deque[ConnectionMarks] | None = None
    _read_mono_ns: int = 0
    _reading: StampedReading | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._waiting = deque()
        # uvloop keeps what is below the limit until its turn ends, other clients' work before it
        transport.set_write_buffer_limits(high=0)
        self._reading = stamped(transport, self._take)
        super().connection_made(self._reading or transport)  # type: ignore[arg-type]
        if self._reading is not None:
            self._reading.read_now()

    def data_received(self, data: bytes) -> None:
        self._take(data, None)

    def _take(self, data: bytes, arrived: int | None) -> None:
        if arrived is None:
            self._read_mono_ns = self.clock.mono_ns()
        else:
            self._read_mono_ns = self.clock.mono_of_recent(arrived)
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        marks = ConnectionMarks(
            self._read_mono_ns, self.flow, self.transport.close, self.transport.abort
        )
        if self._waiting is not None:
            self._waiting.append(marks)
        self.scope["extensions"] = {EXTENSION: marks}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.headers = []  # uvicorn would put trailers among the headers, past every check of them
        if self._waiting:
            self._waiting[-1].cycle = getattr(self, "cycle", None)

    def on_message_complete(self) -> None:
        """uvicorn reads no further behind a long last part, and would not see its client leave."""
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        if self._waiting:  # answers go out in the order the requests came
            self._waiting.popleft()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reading is not None:
            self._reading.end()
        super().connection_lost(exc)
        now = self.clock.mono_ns()
        for marks in self._waiting or ():  # pipelined ones too: the client is gone for all
            marks.lose(now)
