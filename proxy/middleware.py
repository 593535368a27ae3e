"""The outermost ASGI application: stamps a request's life and never changes its answer.

Pure ASGI. Convenience middlewares wrap ``receive`` so that an application no longer
sees the client leave, and buffer what they stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from proxy.asgi import App, Message, Receive, Scope, Send
from proxy.protocol import EXTENSION, ConnectionMarks
from proxy.recorder import Recorder
from proxy.request.live import CURRENT, LiveRequest
from proxy.settings import ProxySettings
from proxy.stream.chunks import identifier
from proxy.untraced import Untraced
from tracer.clock import Clock

__all__ = ["App", "Message", "Receive", "Scope", "Send", "TraceMiddleware"]

ERROR_BODY_LIMIT = 64 * 1024
ABANDON_AFTER_S = 0.5
"""How long an application may take to notice by itself that its client has left."""
TRACE_ID_HEADER = b"x-stagelens-trace-id"


class TraceMiddleware:
    """Wraps an application; one finished record for each request it passes on."""

    def __init__(
        self,
        app: App,
        settings: ProxySettings,
        recorder: Recorder,
        clock: Clock,
        abandon_after_s: float = ABANDON_AFTER_S,
        passes_on: bool = False,
    ) -> None:
        """``passes_on``: answers are others', and get no header of ours, unless one says that it is not."""
        self._passes_on = passes_on
        self._abandon_after_s = abandon_after_s
        self._untraced = Untraced(app, settings.request_timeout_s, abandon_after_s)
        self._app = app
        self._settings = settings
        self._recorder = recorder
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._settings.untraced_paths:
            await self._untraced(scope, receive, send)
            return
        marks = scope.get("extensions", {}).get(EXTENSION)
        if marks is None:
            marks = ConnectionMarks(self._clock.mono_ns())
        live = self._recorder.open(
            scope["method"], scope["path"], scope["headers"], marks.first_byte_mono_ns
        )
        exchange = _Exchange(
            live, marks, receive, send, self._clock, self._settings, self._abandon_after_s,
            self._passes_on,
        )  # fmt: skip
        token = CURRENT.set(live)
        marks.on_lost = exchange.abandon_later
        try:
            await self._run(scope, exchange)
        finally:
            marks.on_lost = None
            CURRENT.reset(token)
            exchange.note_end(scope)
            self._recorder.close(live)
            live.cancel_calls()

    async def _run(self, scope: Scope, exchange: _Exchange) -> None:
        live = exchange.live
        try:
            async with asyncio.timeout(self._settings.request_timeout_s) as limit:
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if not limit.expired():
                live.failure = "TimeoutError"
                raise
            live.failure = "timeout"
            await exchange.send_timeout(self._settings.request_timeout_s or 0.0)
        except asyncio.CancelledError:
            if exchange.abandoned:
                exchange.task.uncancel()
                return
            live.cancelled_by = "shutdown" if self._recorder.shutting_down else "cancelled"
            if self._recorder.shutting_down:
                await exchange.send_shutdown()
            raise
        except Exception as problem:
            if live.disconnected_mono_ns is None:
                live.failure = type(problem).__name__
            raise


class _Exchange:
    """``receive`` and ``send`` of one request, watched."""

    def __init__(
        self,
        live: LiveRequest,
        connection: ConnectionMarks,
        receive: Receive,
        send: Send,
        clock: Clock,
        settings: ProxySettings,
        abandon_after_s: float,
        passes_on: bool,
    ) -> None:
        self._passes_on = passes_on
        self.live = live
        self._abandon_after_s = abandon_after_s
        self._connection = connection
        self._receive = receive
        self._send = send
        self._clock = clock
        self._settings = settings
        self._error_body: bytearray | None = None
        self._started = False
        self._to_come: int | None = None  # bytes of the body, where its head tells how many
        self._last_byte_mono_ns: int | None = None
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in a task"
        self.task = task
        self.abandoned = False
        self._ended = False

    def abandon_later(self) -> None:
        """The client is gone: the application may end by itself, and is cancelled if it does not."""
        self.task.get_loop().call_later(self._abandon_after_s, self._abandon)

    def _abandon(self) -> None:
        if not self.task.done() and self.live.done_mono_ns is None and not self._ended:
            self.abandoned = True
            self.task.cancel()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and self.live.done_mono_ns is None:
            self.live.disconnected_mono_ns = self._clock.mono_ns()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = self._note_start(message)
            await self._send(message)
        elif message["type"] == "http.response.body":
            await self._send_body(message)
        else:
            await self._send(message)

    def _note_start(self, message: Message) -> Message:
        live = self.live
        if self._connection.lost_mono_ns is not None:  # nobody gets it
            return message
        self._started = True
        live.http_status = message["status"]
        live.response_mono_ns = self._clock.mono_ns()
        headers = list(message.get("headers", []))
        live.stream = any(
            name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
            for name, value in headers
        )
        if live.http_status >= 400:
            self._error_body = bytearray()
        self._to_come = _length(headers)
        if self._settings.trace_id_header and (live.answers_itself or not self._passes_on):
            headers.append((TRACE_ID_HEADER, f"{live.trace_id:032x}".encode()))
        return {**message, "headers": headers}

    async def _send_body(self, message: Message) -> None:
        live = self.live
        body = message.get("body", b"")
        waits = self._connection.writing_waits
        now = self._clock.mono_ns()
        await self._send(message)
        if self._connection.lost_mono_ns is not None and live.done_mono_ns is None:
            return
        if waits:  # else the socket took it at once, and what passed since is not the client's
            now = self._clock.mono_ns()
        if live.stream:
            live.clocks.note(body, now, live.tokens_so_far)
        elif self._error_body is not None:
            self._error_body += body[: ERROR_BODY_LIMIT - len(self._error_body)]
        elif body and not message.get("more_body", False):
            live.read_whole(body)
        self._note_length(body, now)
        if not message.get("more_body", False):
            live.done_mono_ns = self._last_byte_mono_ns or now
            if self._error_body:
                live.error_body_type = _error_type(bytes(self._error_body))

    def _note_length(self, body: bytes, now_mono_ns: int) -> None:
        """The client has all of a body of a told length before an application says that it ends."""
        if self._to_come is None or not body:
            return
        self._to_come -= len(body)
        if self._to_come <= 0 and self._last_byte_mono_ns is None:
            self._last_byte_mono_ns = now_mono_ns

    def note_end(self, scope: Scope) -> None:
        """Last marks: the matched route, and a connection that broke unseen by the application."""
        self._ended = True
        route = scope.get("route")
        self.live.route = getattr(route, "path", "") or ""
        lost = self._connection.lost_mono_ns
        if self.live.done_mono_ns is None and self.live.disconnected_mono_ns is None:
            self.live.disconnected_mono_ns = lost

    async def send_timeout(self, limit_s: float) -> None:
        """Tell the client that the proxy's own limit was reached: 504, or an error event."""
        text = f"the request took longer than the limit of {limit_s:g} s (--request-timeout)"
        await self._send_error(504, "timeout", text)

    async def send_shutdown(self) -> None:
        """Tell the client that the server stops: 503, or an error event."""
        text = "the server is shutting down: send the request again to another or a later one"
        await self._send_error(503, "shutdown", text)

    async def _send_error(self, status: int, kind: str, text: str) -> None:
        body = json.dumps({"error": {"message": text, "type": kind, "code": status}}).encode()
        if self._started and (not self.live.stream or self._connection.writing_waits):
            self._connection.abort()  # nothing more reaches the client, which shall see that
            await asyncio.sleep(0)  # the server hears of it
            return
        if self._started:
            await self.send(
                {"type": "http.response.body", "body": b"data: " + body + b"\n\n",
                 "more_body": False}
            )  # fmt: skip
            return
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                ],
            }
        )
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    told = next((value for name, value in headers if name.lower() == b"content-length"), b"")
    return int(told) if told.isdigit() else None


def _error_type(body: bytes) -> str:
    """The ``type`` of an OpenAI-shaped error body; "" where there is none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    return identifier(error.get("type")) if isinstance(error, dict) else ""
