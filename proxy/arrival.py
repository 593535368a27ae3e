"""Sockets that know when their bytes reached this host, not when somebody read them.

An event loop that is busy writing other clients' tokens reads a new request late, and
a stamp taken then hides that wait from the very request that suffered it. Linux
stamps each segment as it arrives (``SO_TIMESTAMPNS``) and hands the stamp out with
the data to who asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

SO_TIMESTAMPNS = 35
"""Linux's generic value; Python's socket module does not name it."""
READ_SIZE = 256 * 1024
WATCH_S = 0.05
"""How often a connection that is not read is looked at."""
GONE = (7, 8)
"""TCP_CLOSE and TCP_CLOSE_WAIT of Linux: the other side was reset, or sends nothing more."""
_STAMP = struct.Struct("@qq")


class StampedSocket(socket.socket):
    """A connection whose ``recv`` keeps the kernel's arrival stamp of what it returned."""

    arrived_unix_ns: int | None = None

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data, ancillary, _, _ = self.recvmsg(bufsize, socket.CMSG_SPACE(_STAMP.size), flags)
        self.arrived_unix_ns = None
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _STAMP.unpack(value[: _STAMP.size])
                self.arrived_unix_ns = seconds * 1_000_000_000 + nanoseconds
        return data


class StampedReading:
    """Reads a transport's socket in its stead, so that each read has the kernel's stamp.

    No event loop hands out ancillary data, and uvloop reads below Python, where it cannot
    be asked for. So the transport only writes; its socket is read here, through a second
    descriptor that the loop polls. Stands for the transport: what it does not do itself
    it passes on.
    """

    def __init__(
        self, transport: asyncio.Transport, on_data: Callable[[bytes, int | None], None]
    ) -> None:
        self._transport = transport
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        outer = transport.get_extra_info("socket")
        self._sock = StampedSocket(
            outer.family, outer.type, outer.proto, os.dup(outer.fileno())
        )  # told, as it would ask the system
        self._reading = False
        self._watching: asyncio.TimerHandle | None = None
        transport.pause_reading()
        self._loop.call_soon(self._pause_inner)
        self.resume_reading()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the transport has
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        if self._reading:
            self._stop()
            self._watch()

    def resume_reading(self) -> None:
        if not self._reading and self._sock.fileno() >= 0:
            self._unwatch()
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def end(self) -> None:
        """Give the descriptor back; call it when the connection is lost."""
        self._stop()
        self._unwatch()
        self._sock.close()

    def _stop(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())

    def _watch(self) -> None:
        """A client that leaves is not heard of while nothing is read: the kernel is asked."""
        self._watching = self._loop.call_later(WATCH_S, self._look)

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        if self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in GONE:
            self._transport.abort()
        else:
            self._watch()

    def _pause_inner(self) -> None:
        """uvloop starts to read after ``connection_made``, whatever was said in it."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def read_now(self) -> None:
        """Take what is there: a client mostly sends its request with its connection."""
        if self._reading:
            self._readable()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._stop()
            self._transport.abort()
            return
        if self._transport.is_closing():
            self._stop()
        elif data:
            broken = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._on_data(data, self._sock.arrived_unix_ns)
            if broken:
                self._poll_again()
        else:
            self._stop()
            self._transport.close()

    def _poll_again(self) -> None:
        """Behind the data the connection was reset: of that uvloop tells once, and polls no more.

        The error is taken off by asking for it, so what is left of the data can be read, to its end.
        """
        if self._reading:
            self._stop()
            self.resume_reading()


def stamped(
    transport: asyncio.Transport, on_data: Callable[[bytes, int | None], None]
) -> StampedReading | None:
    """Reading with stamps where the system has them; None where the transport reads itself.

    That it also does where no second descriptor is left.
    """
    if not sys.platform.startswith("linux") or transport.get_extra_info("ssl_object"):
        return None
    try:
        return StampedReading(transport, on_data)
    except OSError:
        return None


def stamp_arrivals(transport: asyncio.Transport) -> None:
    """Have the kernel stamp what reaches this connection from now on, where it can."""
    if (sock := transport.get_extra_info("socket")) is not None:
        _have_stamped(sock)


def make_listener(family: int) -> socket.socket:
    """A TCP socket whose connections have their arrivals stamped where the system can."""
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    _have_stamped(listener)
    return listener


def _have_stamped(sock: socket.socket) -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
