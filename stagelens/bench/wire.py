"""The client: HTTP/1.1 over kept connections, with as little between socket and stamp as can be."""

from __future__ import annotations

import asyncio
import errno
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httptools

from dashboards.visible import visible
from proxy.arrival import StampedReading, stamp_arrivals, stamped
from stagelens.bench.answer import Answer
from stagelens.bench.sample import CLIENT_LIMIT, INTERRUPTED, Sample
from stagelens.errors import UserError
from tracer.clock import SystemClock

CONTACT_S = 10.0
_OURS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
"""No socket or port was left on this side: nothing that the server did."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; ``base`` is the path before ``/chat/completions``."""

    host: str
    port: int
    base: str
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Target:
        """Of an address with or without ``/v1`` at its end."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/")
        base = path if path.endswith("/v1") else f"{path}/v1"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), base, tls)

    @property
    def is_here(self) -> bool:
        """Whether the address is of this machine itself (a tunnel's end is, too)."""
        return self.host in {"localhost", "127.0.0.1", "::1"}


class _Connection(asyncio.Protocol):
    """One socket; requests on it one after another.

    What came is stamped by the kernel where it can: a client that is busy with other answers
    reads late, and that is not the server's time.
    """

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._answer: Answer | None = None
        self.done: asyncio.Future[bool] | None = None
        self.transport: asyncio.Transport | None = None
        self._headers: dict[bytes, bytes] = {}
        self._framed = self._headed = False
        self._now_ns = 0
        self.used = False
        self.heard = False
        self.lost = False
        self._reading: StampedReading | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.set_write_buffer_limits(high=0)  # uvloop writes what is above the limit at once
        stamp_arrivals(transport)
        self._reading = stamped(transport, self._take)

    def begin(self, request: bytes, answer: Answer, sample: Sample) -> asyncio.Future[bool]:
        """Send; the future's result says whether the connection may serve another request."""
        assert self.transport is not None
        self._answer = answer
        self._headers = {}
        self._parser = httptools.HttpResponseParser(self)
        self._framed = self._headed = self.heard = False
        self.done = asyncio.get_running_loop().create_future()
        sample.sent_ns = sample.sent_ns or self._clock.mono_ns()
        self.transport.write(request)
        return self.done

    def data_received(self, data: bytes) -> None:
        self._take(data, None)

    def _take(self, data: bytes, arrived_unix_ns: int | None) -> None:
        if arrived_unix_ns is None:
            self._now_ns = self._clock.mono_ns()
        else:
            self._now_ns = self._clock.mono_of_recent(arrived_unix_ns)
        self.heard = True
        if self._answer is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, ValueError) as problem:
            self._break(f"{type(problem).__name__}: {problem}")

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._is_interim or self._answer is None:
            return
        self._headed = True
        self._framed = not {b"content-length", b"transfer-encoding"}.isdisjoint(self._headers)
        self._answer.head(self._parser.get_status_code(), self._headers, self._now_ns)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.body(data, self._now_ns)

    @property
    def _is_interim(self) -> bool:
        """A 1xx, as 103 Early Hints: the answer itself comes after it."""
        return bool(self._parser.get_status_code() < 200)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._headers = {}
            return
        self._end(keep=self._parser.should_keep_alive())

    def _end(self, *, keep: bool) -> None:
        if self._answer is not None and self.done is not None and not self.done.done():
            self._answer.ended(self._now_ns)
            self.done.set_result(keep)
        self._answer = None

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._reading is not None:
            self._reading.end()
        if self._answer is None:
            return
        if self._headed and not error and not self._framed:
            self._end(keep=False)  # a body that ends with its connection
        else:
            self._break(str(error or "the server closed the connection"))

    def _break(self, said: str) -> None:
        self._answer = None
        if self.done is not None and not self.done.done():
            self.done.set_exception(ConnectionError(said))
        self.abort()

    def abort(self) -> None:
        self._answer = None
        if self.transport is not None:
            self.transport.abort()


class UntrustedError(OSError):
    """The server is not known to be who it says."""


class Client:
    """Sends requests; a new connection is made whenever none is free."""

    def __init__(
        self, target: Target, clock: SystemClock, timeout_s: float, ca: Path | None = None,
        contact_s: float = CONTACT_S,
    ) -> None:  # fmt: skip
        """``ca``: certificates to trust beside the system's; ``contact_s``: for the first connection.

        Raises:
            UserError: ``ca`` holds none.
        """
        self._target, self._clock, self._timeout_s = target, clock, timeout_s
        self._contact_s, self._reached = contact_s, False
        self._free: list[_Connection] = []
        self._tls = _trusting(ca) if target.tls else None

    async def send(self, request: bytes, sample: Sample, *, keep_text: bool = False) -> str:
        """Send and read the whole answer into ``sample``; its words when they are kept.

        Never raises for what the server or the network does: that is ``sample.error``.
        A kept connection that the server had closed meanwhile is replaced once.
        """
        answer = Answer(sample, keep_text=keep_text)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._exchange(request, answer, sample)
        except TimeoutError:
            self._failed(sample, "timeout", f"no whole answer within {self._timeout_s:g} s")
        except OSError as problem:
            kind = CLIENT_LIMIT if problem.errno in _OURS else "connection"
            self._failed(sample, kind, str(problem) or type(problem).__name__)
        except asyncio.CancelledError:
            self._failed(sample, INTERRUPTED, "")
            raise
        return "".join(answer.text)

    async def _exchange(self, request: bytes, answer: Answer, sample: Sample) -> None:
        connection = await self._connect(sample)
        try:
            keep = await self._on(connection, request, answer, sample)
        except ConnectionError:
            if not connection.used or connection.heard:
                raise
            sample.resent = True
            connection = await self._made(sample)
            keep = await self._on(connection, request, answer, sample)
        connection.used = True
        if keep and not connection.lost:
            self._free.append(connection)
        else:
            connection.abort()

    async def _on(
        self, connection: _Connection, request: bytes, answer: Answer, sample: Sample
    ) -> bool:
        try:
            return await connection.begin(request, answer, sample)
        except ConnectionError:
            raise
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, sample: Sample) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.lost:
                return connection
        return await self._made(sample)

    async def _made(self, sample: Sample) -> _Connection:
        """The first connection has a limit of its own: a wrong address or scheme is told soon.

        Later ones may wait in a loaded server's queue, which is its time.
        """
        try:
            async with asyncio.timeout(None if self._reached else self._contact_s) as limit:
                made = await self._dialled()
        except TimeoutError:
            if not limit.expired():
                raise
            what = "TLS handshake" if self._tls else "connection"
            hint = "; does it speak https?" if self._tls else ""
            raise ConnectionError(f"no {what} within {self._contact_s:g} s{hint}") from None
        self._reached = True
        sample.connected_ns = self._clock.mono_ns()
        return made

    async def _dialled(self) -> _Connection:
        at = self._target
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self._clock), at.host, at.port, ssl=self._tls
            )
        except ssl.SSLCertVerificationError as problem:
            raise UntrustedError(
                f"its certificate is not trusted ({problem.verify_message}): name one to trust "
                "with --ca"
            ) from None
        return made

    async def get(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of an answer that is no completion.

        Raises:
            OSError: no answer within the time-out (``TimeoutError``), or none at all.
        """
        sample = Sample(number=0, intended_ns=0, measured=False)
        answer = Answer(sample, keep_text=False)
        async with asyncio.timeout(self._timeout_s):
            await self._exchange(request, answer, sample)
        return sample.status, answer.raw

    def _failed(self, sample: Sample, kind: str, said: str) -> None:
        sample.end_ns = self._clock.mono_ns()
        if not sample.error:
            sample.error, sample.said = kind, visible(said)[:300]

    async def close(self) -> None:
        """End the kept connections; the loop has closed their sockets when this returns."""
        for connection in self._free:
            connection.abort()
        self._free.clear()
        await asyncio.sleep(0)


def _trusting(ca: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except OSError as problem:
            why = problem.strerror if not isinstance(problem, ssl.SSLError) else "no certificates in PEM"
            raise UserError(f"--ca {ca} cannot be used ({why})", 2) from None
    return context
