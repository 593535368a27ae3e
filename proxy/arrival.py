"""Sockets that know when their bytes reached this host, not when somebody read them.

An event loop that is busy writing other clients' tokens reads a new request late, and
a stamp taken then hides that wait from the very request that suffered it. Linux
stamps each segment as it arrives (``SO_TIMESTAMPNS``) and hands the stamp out with
the data; asyncio's own loop reads through the socket object, so it can be asked for.
"""

from __future__ import annotations

import socket
import struct
import sys

SO_TIMESTAMPNS = 35
"""Linux's generic value; Python's socket module does not name it."""
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


class StampedListener(socket.socket):
    """A listening socket whose connections are :class:`StampedSocket` objects."""

    def accept(self) -> tuple[socket.socket, object]:
        fd, address = self._accept()  # type: ignore[attr-defined]
        return StampedSocket(self.family, self.type, self.proto, fileno=fd), address


def make_listener(family: int) -> socket.socket:
    """A TCP socket that stamps arrivals where the system can, and a plain one elsewhere."""
    if not sys.platform.startswith("linux"):
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener = StampedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        listener.close()
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    return listener
