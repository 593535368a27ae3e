"""One HTTP/1.1 connection to an upstream: httptools' parser on an asyncio transport.

A library's client hands each part of a body over through a queue, a future and a task's
wake-up, which together cost more than forwarding it. Here the parser's part goes
straight to the one who takes it, and only what cannot be taken at once waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from proxy.upstream.http1_message import BadResponse, ResponseMessage, whole_chunks

HELD_LIMIT = 256 * 1024
"""Bytes of a body that may wait here for a slow client; beyond that the upstream waits."""

Taker = Callable[[bytes], bool]
"""Takes a part of a body at once; False where it cannot now, and the part waits."""
Lane = Callable[[list[bytes], bytes], bool]
"""Takes parts of a body with the bytes that they came in as chunks; as ``Taker``."""


class Http1Response:
    """A response whose head has come; the body is read with ``content.iter_any()``."""

    def __init__(self, connection: Http1Connection) -> None:
        self._connection = connection
        self.status = 0
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._parts: list[bytes] = []
        self._held = 0
        self._taker: Taker | None = None
        self.lane: Lane | None = None
        self._more: asyncio.Future[None] | None = None
        self._problem: Exception | None = None

    @property
    def content(self) -> Http1Response:
        return self

    async def iter_any(
        self, taker: Taker | None = None, lane: Lane | None = None
    ) -> AsyncIterator[bytes]:
        """Body parts as they come; those that ``taker`` or ``lane`` takes are not among them.

        ``lane`` is asked first, for a read that is whole chunks.

        Raises:
            ConnectionError: the connection broke before the body's end.
            BadResponse: the body is no HTTP.
        """
        while True:
            while self._parts:
                parts, self._parts, self._held = self._parts, [], 0
                self._connection.hold(False)
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            if self.ended:
                return
            if self._problem is not None:
                raise self._problem
            self._more = asyncio.get_running_loop().create_future()
            self._taker, self.lane = taker, lane
            try:
                await self._more
            finally:
                self._taker = self.lane = None

    def close(self) -> None:
        """Leave the response: an unfinished one takes its connection with it. Safe twice."""
        self._connection.leave(self)

    release = close

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status, self.raw_headers = status, tuple(headers)
        if not self.head.done():
            self.head.set_result(None)

    def on_part(self, part: bytes) -> None:
        if self._taker is not None and self._taker(part):
            return
        self._taker = self.lane = None
        self._parts.append(part)
        self._held += len(part)
        if self._held > HELD_LIMIT:
            self._connection.hold(True)
        self._wake()

    def on_end(self) -> None:
        self.ended = True
        self._wake()

    def on_problem(self, problem: Exception) -> None:
        if not self.ended and self._problem is None:
            self._problem = problem
            self._wake()
        if not self.head.done():
            self.head.set_exception(problem)
            self.head.exception()  # whoever waits gets it; nobody waiting is no fault

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class Http1Connection(asyncio.Protocol):
    """A client connection with one request at a time; ``usable`` says whether it takes another."""

    def __init__(self, on_idle: Callable[[Http1Connection], None]) -> None:
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._response: Http1Response | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._upload: asyncio.Task[None] | None = None
        self._gone = False
        self._holding = False
        self._message = ResponseMessage(headless=False)

    @property
    def usable(self) -> bool:
        return not self._gone and self._response is None

    # -- requests --------------------------------------------------------------

    async def request(
        self, method: str, head: bytes, body: bytes | AsyncIterator[bytes] | None, chunked: bool
    ) -> Http1Response:
        """Send a request and wait for its response's head.

        Raises:
            ConnectionError: the connection broke before that.
            BadResponse: what came is no HTTP.
            Exception: whatever ``body`` raises.
        """
        if self._transport is None or self._gone:
            raise ConnectionResetError("the connection to the upstream is gone")
        response = self._response = Http1Response(self)
        self._message = ResponseMessage(headless=method == "HEAD")
        try:
            if body is None or isinstance(body, bytes):
                self._transport.write(head + (body or b""))
            else:
                self._transport.write(head)
                self._upload = asyncio.create_task(self._send(body, chunked))
                await asyncio.wait(
                    {self._upload, response.head}, return_when=asyncio.FIRST_COMPLETED
                )
                if not response.head.done():
                    self._upload.result()
                self._upload.add_done_callback(self._note_upload)
            await response.head
        except BaseException:
            self.leave(response)
            raise
        return response

    async def _send(self, body: AsyncIterator[bytes], chunked: bool) -> None:
        assert self._transport is not None
        async for part in body:
            await self._writable.wait()
            if self._gone:
                return
            self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    def _note_upload(self, upload: asyncio.Task[None]) -> None:
        """A body that breaks off after the answer began leaves a request nobody can finish."""
        if not upload.cancelled() and upload.exception() is not None:
            self._break(ConnectionAbortedError("the request's body broke off"))

    def leave(self, response: Http1Response) -> None:
        """Forget the response; one that is not whole closes the connection, so the upstream stops."""
        if self._response is not response:
            return
        self._response = None
        uploaded = self._upload is None or self._upload.done()
        if self._upload is not None:
            self._upload.cancel()
            self._upload = None
        self.hold(False)
        if response.ended and uploaded and self._message.reusable and not self._gone:
            self._on_idle(self)
        else:
            self.close()

    def close(self) -> None:
        self._gone = True
        if self._transport is not None:
            self._transport.abort()

    def hold(self, holding: bool) -> None:
        """Stop reading, or go on: what a client has not taken is not taken from the upstream."""
        if self._transport is None or self._gone or holding == self._holding:
            return
        self._holding = holding
        if holding:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- the transport's side --------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.ended:
            self.close()  # nobody asked: what follows cannot be told apart from an answer
            return
        message = self._message
        if response.lane is not None and message.between_chunks:
            parts = whole_chunks(data)
            if parts is not None and response.lane(parts, data):
                return
        try:
            part = message.feed(data)
        except BadResponse as problem:
            self._break(problem)
            return
        if message.headed and not response.status:
            response.on_head(message.status, message.headers)
        if part:
            response.on_part(part)
        if message.complete:
            response.on_end()

    def eof_received(self) -> None:
        if self._message.until_close and self._response is not None:
            self._response.on_end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._writable.set()
        if self._response is not None:
            if exc is None and self._message.until_close:
                self._response.on_end()
            else:
                self._response.on_problem(ConnectionResetError("the upstream hung up"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _break(self, problem: Exception) -> None:
        if self._response is not None:
            self._response.on_problem(problem)
        self.close()
