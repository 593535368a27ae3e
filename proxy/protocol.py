"""uvicorn's HTTP protocol with two stamps added: first byte in, connection lost."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tracer.clock import Clock, SystemClock

EXTENSION = "stagelens.connection"
"""Key in ``scope["extensions"]`` under which a request finds its :class:`ConnectionMarks`."""


class ConnectionMarks:
    """When a request's first byte was read, and when its connection broke, if it did."""

    __slots__ = ("first_byte_mono_ns", "lost_mono_ns")

    def __init__(self, first_byte_mono_ns: int) -> None:
        self.first_byte_mono_ns = first_byte_mono_ns
        self.lost_mono_ns: int | None = None


class StampingProtocol(HttpToolsProtocol):
    """Stamps each request at its first byte, before any of it is parsed.

    ASGI starts an application only once the headers are whole, so a slow upload of
    headers or a busy event loop would go unseen.
    """

    clock: Clock = SystemClock()
    _marks: ConnectionMarks | None = None
    _read_mono_ns: int = 0

    def data_received(self, data: bytes) -> None:
        self._read_mono_ns = self.clock.mono_ns()
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._marks = ConnectionMarks(self._read_mono_ns)
        self.scope["extensions"] = {EXTENSION: self._marks}  # type: ignore[dict-item]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._marks is not None and self._marks.lost_mono_ns is None:
            self._marks.lost_mono_ns = self.clock.mono_ns()
        super().connection_lost(exc)
