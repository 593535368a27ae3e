"""A connection to an upstream: name, address and TLS, each step stamped."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from functools import lru_cache
from socket import IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY
from typing import TypeVar
from urllib.parse import urlsplit

import aiohappyeyeballs

from proxy.upstream.call import ConnectionMarks
from tracer.clock import Clock

Origin = tuple[str, str, int, bool]
"""Scheme, host, port, and whether the certificate is checked."""
P = TypeVar("P", bound=asyncio.Protocol)
_HOST = re.compile(r"[^/?*]*")
NEXT_ADDRESS_AFTER_S = 0.25
"""How long one address of a name may be silent before the next one is tried beside it (RFC 8305)."""


class ConnectTimeout(Exception):
    """No connection within the limit."""


class Unreachable(Exception):
    """No connection: the name, the address, the port or the certificate is wrong."""


@lru_cache(maxsize=256)
def divided(url: str, verify: bool) -> tuple[Origin, str, str]:
    """Where a URL leads, its host as a header has it, and what is asked for there.

    What is asked for is a client's own writing and is not looked into: it may be ``*``.
    """
    scheme, _, rest = url.partition("://")
    host = _HOST.match(rest)
    netloc = host.group() if host else ""
    parts = urlsplit(f"{scheme}://{netloc}")
    port = parts.port or (443 if scheme == "https" else 80)
    return (scheme, parts.hostname or "", port, verify), netloc, rest[len(netloc) :] or "/"


class NotBegun(ConnectionError):
    """The upstream has not begun with the request and will not: it may be sent again."""


class Dialer:
    """Makes connections that speak one of ``alpn``; used from the event loop only."""

    def __init__(self, clock: Clock, timeout_s: float | None, alpn: tuple[str, ...]) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._alpn = list(alpn)
        self._contexts: dict[bool, ssl.SSLContext] = {}

    async def connect(
        self, origin: Origin, marks: ConnectionMarks, make: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """A new connection; ``marks`` gets when each step was done.

        Raises:
            ConnectTimeout, Unreachable: there is none.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connect(origin, marks, make)
        except TimeoutError:
            raise ConnectTimeout from None
        except (OSError, ssl.SSLError, UnicodeError):
            raise Unreachable from None

    async def _connect(
        self, origin: Origin, marks: ConnectionMarks, make: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        scheme, host, port, verify = origin
        loop = asyncio.get_running_loop()
        now = self._clock.mono_ns
        marks.began_mono_ns = now()
        found = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
        marks.dns_ns = now() - marks.began_mono_ns
        sock = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S, loop=loop
        )
        sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        marks.tcp_done_mono_ns = now()
        marks.tls = scheme == "https"
        context = self._context(verify) if marks.tls else None
        made = await loop.create_connection(
            make, sock=sock, ssl=context, server_hostname=host if context else None
        )
        marks.connected_mono_ns = now()
        return made

    def _context(self, verify: bool) -> ssl.SSLContext:
        context = self._contexts.get(verify)
        if context is None:
            context = self._contexts[verify] = ssl.create_default_context()
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(self._alpn)
        return context
