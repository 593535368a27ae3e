"""Pure ASGI middleware: each request of your own application is a record whose stages add up.

::

    app.add_middleware(StagelensMiddleware)          # FastAPI, Starlette
    app = StagelensMiddleware(app)                   # anything that speaks ASGI
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from opentelemetry.trace import SpanKind

from tracer import semconv
from tracer.sdk.http import caller_of, is_comment, is_event_stream, known_method, span_method
from tracer.sdk.leaving import flushing
from tracer.sdk.live import Live, Spec, outcome_of
from tracer.sdk.root import without_task
from tracer.sdk.runtime import Runtime, active
from tracer.stages import Stage

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WATCH_AFTER_S = 0.1
"""A request that takes longer is watched for its client leaving."""
WAIT_NS = 1_000_000
"""A body part that takes longer to be sent waited for its client."""
TRACE_ID_HEADER = b"x-stagelens-trace-id"
_SPEC = Spec(root=True, kind=SpanKind.SERVER)
_KEY = "stagelens.exchange"
"""Of a request's scope: what watches it."""
_SERVER_ERROR = 500
_ELSEWHERE = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
"""A server's extensions by which it sends a file itself."""


class StagelensMiddleware:
    """One span a request, however many parts its answer has; its end is the last byte's.

    Nothing of headers, query or body is recorded, and a path only as its route. Requests to
    the paths of ``skip`` are passed on unseen. ``trace_id_header``: answers name their trace
    in ``x-stagelens-trace-id``, for :func:`tracer.outcome`. Before :func:`tracer.configure`
    it does nothing.
    """

    def __init__(
        self, app: App, *, skip: Sequence[str] = (), trace_id_header: bool = False
    ) -> None:
        self._app = app
        self._skip = frozenset(skip)
        self._trace_id_header = trace_id_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, flushing(send))
            return
        runtime = active()
        if runtime is None or scope["type"] != "http" or scope["path"] in self._skip:
            await self._app(scope, receive, send)
            return
        if self._joins(scope):
            await self._app(scope, receive, send)
            return
        try:
            exchange = _Exchange(runtime, scope, receive, send, self._trace_id_header)
        except Exception:  # noqa: BLE001  telemetry never breaks the application
            runtime.lose()
            await self._app(scope, receive, send)
            return
        scope[_KEY] = exchange
        token = exchange.live.enter()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except BaseException as problem:
            exchange.end(problem)
            raise
        else:
            exchange.end()
        finally:
            exchange.live.leave(token)
            exchange.close()
            scope.pop(_KEY, None)

    def _joins(self, scope: Scope) -> bool:
        """Whether another of these is around it, such as that of the application it is mounted in."""
        around = scope.get(_KEY)
        if not isinstance(around, _Exchange):
            return False
        around.tell_id = around.tell_id or self._trace_id_header
        return True


class _Exchange:
    """``receive`` and ``send`` of one request, watched; its span ends once."""

    def __init__(
        self, runtime: Runtime, scope: Scope, receive: Receive, send: Send, tell_id: bool
    ) -> None:
        self._runtime, self._scope, self.tell_id = runtime, scope, tell_id
        self._receive, self._send = receive, send
        self._method = known_method(scope["method"])
        within = without_task(caller_of(scope))  # a request is a task of its own
        self.live = Live(runtime, _SPEC, span_method(self._method), within)
        assert self.live.task is not None
        self._task = self.live.task
        self._status = 0
        self._parts = 0
        self._event_stream = False
        self._head_mono_ns: int | None = None
        self._last_mono_ns: int | None = None
        self._body_mono_ns = self.live.start_mono_ns
        self._gaps: list[int] = []
        self._gone = self._ended = False
        self._in_receive = self._late = False
        self._waiting: list[Message] = []
        self._arrived = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._timer = self._later()

    # -- what comes in -----------------------------------------------------------

    async def receive(self) -> Message:
        while self._watch is not None and not self._waiting and not self._watch.done():
            self._arrived.clear()
            await self._arrived.wait()
        if self._waiting:
            return self._read(self._waiting.pop(0))
        self._in_receive = True
        try:
            message = self._read(self._noted(await self._receive()))
        finally:
            self._in_receive = False
        if self._late and not message.get("more_body", False):
            self._begin_watch()
        return message

    def _read(self, message: Message) -> Message:
        """The application has it: the body has come in, if nothing else has begun before."""
        if self._head_mono_ns is None and not self._task.intervals:
            self._body_mono_ns = self._runtime.clock.mono_ns()
        return message

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self._gone = True
            if not self._ended:
                self._finish("cancelled", "client_disconnect", self._runtime.clock.mono_ns())
        return message

    def _later(self) -> asyncio.TimerHandle | None:
        try:
            return asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin_watch)
        except RuntimeError:  # not asyncio's loop: the application itself sees its client leave
            return None

    def _begin_watch(self) -> None:
        self._late = True
        over = self._watch is None or self._watch.done()
        if over and not (self._in_receive or self._ended or self._gone):
            self._watch = asyncio.create_task(self._watched())
            self._watch.add_done_callback(self._watch_over)

    async def _watched(self) -> None:
        """Take messages ahead of the application until one says that there are more to come."""
        while not self._gone:
            message = self._noted(await self._receive())
            self._waiting.append(message)
            self._arrived.set()
            if message.get("more_body", False):
                return

    def _watch_over(self, watch: asyncio.Task[None]) -> None:
        """What went wrong in it is the application's to see, if it asks again."""
        if not watch.cancelled():
            watch.exception()
        self._arrived.set()

    # -- what goes out -----------------------------------------------------------

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            try:
                message = self._head(message)
            except Exception:  # noqa: BLE001  the server says what is wrong with it
                self._runtime.fault()
        before = self._runtime.clock.mono_ns()
        try:
            await self._send(message)
        except OSError:
            self._gone = True
            raise
        if self._ended:
            return
        if kind == "http.response.body":
            try:
                self._body(message, before, self._runtime.clock.mono_ns())
            except Exception:  # noqa: BLE001  telemetry never breaks the application
                self._runtime.fault()
        elif kind in _ELSEWHERE and not message.get("more_body", False):
            self._finish("ok", "", self._runtime.clock.mono_ns())

    def _head(self, message: Message) -> Message:
        self._status = message["status"]
        self._head_mono_ns = self._runtime.clock.mono_ns()
        headers = message.get("headers", ())
        if not isinstance(headers, list | tuple):  # one that can be read only once
            message = {**message, "headers": (headers := list(headers))}
        self._event_stream = is_event_stream(headers)
        if not self.tell_id:
            return message
        trace_id = self.live.span.get_span_context().trace_id
        return {**message, "headers": [*headers, (TRACE_ID_HEADER, f"{trace_id:032x}".encode())]}

    def _body(self, message: Message, before: int, after: int) -> None:
        now = before
        if after - before > WAIT_NS:
            self._task.waits.append((before, after))
            now = after
        body = message.get("body", b"")
        if body and not (self._event_stream and is_comment(bytes(body[:4096]))):
            self._note_part(now)
        if not message.get("more_body", False):
            self._finish("ok", "", after)

    def _note_part(self, now: int) -> None:
        task = self._task
        self._parts += 1
        if task.first_chunk_mono_ns is None:
            task.first_chunk_mono_ns = now
        elif self._last_mono_ns is not None and len(self._gaps) < semconv.ITL_CAP:
            self._gaps.append(now - self._last_mono_ns)
        if task.first_token_mono_ns is None and task.model_token_mono_ns is not None:
            task.first_token_mono_ns = now
        if task.first_answer_mono_ns is None and task.model_answer_mono_ns is not None:
            task.first_answer_mono_ns = now
        self._last_mono_ns = now

    # -- the end -----------------------------------------------------------------

    def end(self, problem: BaseException | None = None) -> None:
        """The application is done: a request whose last byte did not go out ends here."""
        if self._ended:
            return
        status, kind = outcome_of(problem)
        if self._gone:
            status, kind = "cancelled", "client_disconnect"
        elif problem is not None and not self._status and status == "error":
            self._status = _SERVER_ERROR
        elif problem is None:
            status, kind = "error", "response_incomplete"
        self._finish(status, kind, self._runtime.clock.mono_ns())

    def close(self) -> None:
        for one in (self._timer, self._watch):
            if one is not None:
                one.cancel()

    def _finish(self, status: str, kind: str, now: int) -> None:
        self._ended = True
        try:
            if self._status >= 400 and status == "ok":
                status, kind = "error", str(self._status)
            self._divide(now, status)
            self._describe()
            client_error = 400 <= self._status < _SERVER_ERROR
            self.live.finish(status, kind, now, failed=status == "error" and not client_error)
        except Exception:  # noqa: BLE001
            self._runtime.fault()

    def _divide(self, now: int, status: str) -> None:
        """The stages that only the server's side knows: the body coming in, the answer going out."""
        task = self._task
        if not task.intervals and task.model_token_mono_ns is None:
            task.operation = ""
        task.add(Stage.PROMPT, self.live.start_mono_ns, self._body_mono_ns)
        if self._head_mono_ns is not None and status != "cancelled":
            ready = task.last_token_mono_ns or self._head_mono_ns
            task.add(Stage.DELIVER, max(ready, self._head_mono_ns), now)
        task.streams = self._event_stream or self._parts > 1
        if not task.streams:
            task.first_chunk_mono_ns = task.first_token_mono_ns = task.first_answer_mono_ns = None
        elif task.model_token_mono_ns is None:
            task.first_token_mono_ns = task.first_chunk_mono_ns

    def _describe(self) -> None:
        span, scope = self.live.span, self._scope
        if not span.is_recording():
            return
        method, start = self._method, self.live.start_mono_ns
        route = getattr(scope.get("route"), "path", "") or ""
        told: dict[str, Any] = {semconv.HTTP_REQUEST_METHOD: method}
        if route:
            told[semconv.HTTP_ROUTE] = route
            span.update_name(f"{span_method(method)} {route}")
        if self._status:
            told[semconv.HTTP_RESPONSE_STATUS_CODE] = self._status
        if self._head_mono_ns is not None:
            told[semconv.RESPONSE_HEAD_NS] = self._head_mono_ns - start
        if self._gaps and self._task.streams:
            told[semconv.ITL_NS] = ",".join(map(str, self._gaps))
            told[semconv.ITL_KIND] = "chunk"
        span.set_attributes(told)
