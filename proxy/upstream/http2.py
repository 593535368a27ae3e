"""One HTTP/2 connection to an upstream: h2's protocol engine on an asyncio transport.

httpx speaks HTTP/2 too, but does not reset a stream that is left early (httpcore 1.0),
so an upstream would go on generating for a client that is gone. Here leaving a response
sends RST_STREAM. Flow control follows the reader: what the client has not taken is not
acknowledged, so the upstream waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

from proxy.upstream.connect import NotBegun

WINDOW = 1 << 20
"""Bytes of one stream that may wait here for a slow client."""
CONNECTION_WINDOW = 16 << 20


class Http2Response:
    """A response whose head has come; the body is read with ``content.iter_any()``."""

    def __init__(self, connection: Http2Connection, stream_id: int) -> None:
        self._connection = connection
        self._stream_id = stream_id
        self._loop = asyncio.get_running_loop()
        self.head: asyncio.Future[None] = self._loop.create_future()
        self.status = 0
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = ()
        self._parts: deque[tuple[bytes, int]] = deque()
        self._more = asyncio.Event()
        self._ended = False
        self._problem: Exception | None = None
        self.upload: asyncio.Task[None] | None = None

    @property
    def content(self) -> Http2Response:
        """Itself: where a response has its reader."""
        return self

    async def iter_any(
        self,
        taker: Callable[[bytes], bool] | None = None,  # noqa: ARG002  one per connection's turn
        lane: Callable[[list[bytes], bytes], bool] | None = None,  # noqa: ARG002  it has no chunks
    ) -> AsyncIterator[bytes]:
        """Body parts as they come, all of them iterated.

        Raises:
            ConnectionError: the stream was reset or the connection broke.
        """
        while True:
            while self._parts:
                data, counted = self._parts.popleft()
                self._connection.taken(self._stream_id, counted)
                if data:
                    yield data
            if self._ended:
                return
            if self._problem is not None:
                raise self._problem
            self._more.clear()
            await self._more.wait()

    def close(self) -> None:
        """Leave the response: an unfinished one is reset, so the upstream stops. Safe twice."""
        if self.upload is not None:
            self.upload.cancel()
        unread = sum(counted for _, counted in self._parts)
        self._parts.clear()
        self._connection.leave(self._stream_id, unread, whole=self._ended)

    release = close

    # -- the connection's side -------------------------------------------------

    def on_head(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        fields = [(bytes(n), bytes(v)) for n, v in headers]
        status = next((v for n, v in fields if n == b":status"), b"")
        if len(status) != 3 or not status.isdigit() or status < b"100":
            raise ValueError("no status of HTTP")
        self.status = int(status)
        self.raw_headers = tuple((n, v) for n, v in fields if not n.startswith(b":"))
        if not self.head.done():
            self.head.set_result(None)

    def on_data(self, data: bytes, counted: int) -> None:
        self._parts.append((data, counted))
        self._more.set()

    def on_end(self) -> None:
        self._ended = True
        self._more.set()

    def note_upload(self, upload: asyncio.Task[None]) -> None:
        """A body that breaks off after the answer began leaves a request nobody can finish."""
        if not upload.cancelled() and upload.exception() is not None:
            self.on_problem(ConnectionAbortedError("the request's body broke off"))

    def on_problem(self, problem: Exception) -> None:
        if not self._ended and self._problem is None:
            self._problem = problem
            self._more.set()
        if not self.head.done():
            self.head.set_exception(problem)
            self.head.exception()  # whoever waits gets it; nobody waiting is no fault


class Http2Connection(asyncio.Protocol):
    """A client connection with many streams; ``usable`` says whether it takes another one."""

    def __init__(self, on_idle: Callable[[Http2Connection], None]) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._streams: dict[int, Http2Response] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._window = asyncio.Event()
        self._closing = False
        self._on_idle = on_idle

    @property
    def usable(self) -> bool:
        most = self._h2.remote_settings.max_concurrent_streams
        return not self._closing and len(self._streams) < most

    @property
    def streams(self) -> int:
        return len(self._streams)

    @property
    def closed(self) -> bool:
        return self._closing and not self._streams

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._writable.set()
        # a value assigned later counts only once the peer has acknowledged it
        first = {SettingCodes.INITIAL_WINDOW_SIZE: WINDOW, SettingCodes.ENABLE_PUSH: 0}
        self._h2.local_settings = Settings(client=True, initial_values=first)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._on(event)
        except (H2Error, ValueError, UnicodeError):
            self._break(ConnectionError("the upstream broke the rules of HTTP/2"))
            return
        self._window.set()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closing = True
        self._fail_all(ConnectionError("the connection to the upstream is gone"))
        self._window.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- requests --------------------------------------------------------------

    async def request(
        self, headers: list[tuple[bytes, bytes]], body: bytes | AsyncIterator[bytes] | None
    ) -> Http2Response:
        """Send a request and wait for its response's head.

        Raises:
            ConnectionError: the stream or the connection broke before that.
            Exception: whatever ``body`` raises.
        """
        stream_id = self._h2.get_next_available_stream_id()
        response = Http2Response(self, stream_id)
        self._streams[stream_id] = response
        try:
            self._h2.send_headers(stream_id, headers, end_stream=not body)
            self._flush()
            if body:
                response.upload = asyncio.create_task(self._upload(stream_id, body))
                await asyncio.wait(
                    {response.upload, response.head}, return_when=asyncio.FIRST_COMPLETED
                )
                if not response.head.done():
                    response.upload.result()
                response.upload.add_done_callback(response.note_upload)
            await response.head
        except ProtocolError as problem:
            response.close()
            raise NotBegun("the upstream's HTTP/2 connection is closing") from problem
        except BaseException:
            response.close()
            raise
        return response

    async def _upload(self, stream_id: int, body: bytes | AsyncIterator[bytes]) -> None:
        try:
            if isinstance(body, bytes):
                await self._send(stream_id, body)
            else:
                async for part in body:
                    await self._send(stream_id, part)
            if stream_id in self._streams:
                self._h2.end_stream(stream_id)
                self._flush()
        except StreamClosedError:
            return  # answered or reset before the body was whole

    async def _send(self, stream_id: int, data: bytes) -> None:
        view = memoryview(data)
        while view and stream_id in self._streams:
            await self._writable.wait()
            room = min(
                self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size
            )
            if room <= 0:
                self._window.clear()
                await self._window.wait()
                continue
            self._h2.send_data(stream_id, bytes(view[:room]))
            view = view[room:]
            self._flush()

    # -- streams ---------------------------------------------------------------

    def taken(self, stream_id: int, counted: int) -> None:
        """The reader took ``counted`` bytes: the upstream may send as many more."""
        if counted and not self._closing:
            try:
                self._h2.acknowledge_received_data(counted, stream_id)
            except H2Error:
                return
            self._flush()

    def leave(self, stream_id: int, unread: int, *, whole: bool) -> None:
        """Forget a stream; one that is not whole is reset."""
        if self._streams.pop(stream_id, None) is None:
            return
        self.taken(stream_id, unread)
        if not whole and self._transport is not None and not self._transport.is_closing():
            try:
                self._h2.reset_stream(stream_id, ErrorCodes.CANCEL)
            except H2Error:
                pass
            self._flush()
        if not self._streams:
            self._on_idle(self)

    def close(self) -> None:
        """Say goodbye and hang up; running streams break. Safe twice."""
        if self._transport is None or self._transport.is_closing():
            return
        self._closing = True
        try:
            self._h2.close_connection()
        except H2Error:
            pass
        self._flush()
        self._transport.close()

    def _on(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self._closing = True
            last = event.last_stream_id or 0
            self._fail_all(NotBegun("the upstream closed the connection before"), last)
            return
        response = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, DataReceived):
            counted = event.flow_controlled_length or 0
            if response is None:
                self.taken(event.stream_id or 0, counted)
            else:
                response.on_data(event.data or b"", counted)
        elif response is None:
            return
        elif isinstance(event, ResponseReceived):
            response.on_head(event.headers or ())
        elif isinstance(event, StreamEnded):
            response.on_end()
        elif isinstance(event, StreamReset):
            refused = event.error_code == ErrorCodes.REFUSED_STREAM
            kind = NotBegun if refused else ConnectionResetError
            response.on_problem(kind("the upstream reset the stream"))

    def _fail_all(self, problem: Exception, above: int = 0) -> None:
        for stream_id, response in list(self._streams.items()):
            if stream_id > above:
                response.on_problem(problem)

    def _break(self, problem: Exception) -> None:
        self._closing = True
        self._fail_all(problem)
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            data = self._h2.data_to_send()
            if data:
                self._transport.write(data)
