"""The ASGI application that forwards every request to an upstream and tells its stages."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext

from proxy.middleware import Receive, Scope, Send
from proxy.protocol import ENTERED, EXTENSION, ConnectionMarks
from proxy.recorder import operation_of
from proxy.request.live import CURRENT, LiveRequest
from proxy.request.prompt_marks import prompt_text
from proxy.settings import UpstreamSettings
from proxy.upstream.access import Access
from proxy.upstream.answers import Refusal, answer
from proxy.upstream.attempt import Outgoing, Trace, Unanswered, open_attempt
from proxy.upstream.body import Asked, ClientLeft, RequestBody, check_codings, has_body, read_asked
from proxy.upstream.call import UpstreamCall
from proxy.upstream.client import Response, UpstreamClient
from proxy.upstream.ending import break_off, drain
from proxy.upstream.headers import value_of
from proxy.upstream.pool import Pool, Upstream
from proxy.upstream.relay import Relay, UpstreamGone
from proxy.upstream.repeats import Proven
from proxy.upstream.routes import Route, route_of
from tracer.clock import Clock
from tracer.ids import IdSource


class UpstreamApp:
    """Forwards; each request is independent. Started and stopped by ASGI's lifespan."""

    def __init__(
        self, settings: UpstreamSettings, pool: Pool, access: Access, clock: Clock, ids: IdSource
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._access = access
        self._clock = clock
        self._ids = ids
        self._proven = Proven()
        self._client = UpstreamClient(
            clock, settings.connect_timeout_s, settings.idle_connection_s
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self._client.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = CURRENT.get()
        route = route_of(scope["path"])
        if route is not None:
            scope["route"] = route
        exchange = _Exchange(self, scope, receive, send, live, route)
        try:
            inside = ENTERED in scope.get("extensions", {})
            with nullcontext() if inside else self._access.enter(scope["headers"]):
                await exchange.run()
        except Refusal as refusal:
            if live is not None:
                live.error_kind = refusal.kind
            asks = value_of(scope["headers"], b"expect") is not None and not exchange.entered
            read = exchange.body_read or (not asks and await drain(receive))
            await answer(send, refusal, close=not read)
        except UpstreamGone:
            if live is not None and not live.failure:
                live.failure = "upstream_disconnect"
            await break_off(scope, receive)
        except ClientLeft:
            return

    @property
    def parts(
        self,
    ) -> tuple[UpstreamSettings, Pool, Access, Clock, IdSource, UpstreamClient, Proven]:
        return (
            self._settings, self._pool, self._access, self._clock, self._ids, self._client,
            self._proven,
        )  # fmt: skip


class _Exchange:
    """One request: its body, its attempts, its answer.

    ``entered``: the door let it in; until then a client that waits for 100 (Continue) sends nothing.
    """

    def __init__(
        self,
        app: UpstreamApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        live: LiveRequest | None,
        route: Route | None,
    ) -> None:
        (
            self._settings, self._pool, self._access, self._clock, self._ids, self._client,
            self._proven,
        ) = app.parts  # fmt: skip
        self._scope = scope
        self._receive = receive
        self._send = send
        self._live = live
        self._readable = route is not None and route.reads
        self._named = route is not None
        self._operation = operation_of(scope["path"], scope["method"])
        self._begun = False
        self._calls: list[UpstreamCall] = []
        self._has_body = has_body(scope["headers"])
        self.body_read = not self._has_body
        self.entered = False

    async def run(self) -> None:
        self.entered = True
        out = await self._outgoing()
        if self._live is not None and self._operation:
            self._live.model = out.asked.model
        tried: list[Upstream] = []
        model, prefix = out.asked.model, out.asked.prefix
        while True:
            upstream = self._pool.choose(model, prefix, tried) or tried[-1]
            tried.append(upstream)
            budget = len(self._calls) + 1 < self._settings.max_attempts
            elsewhere = budget and self._pool.choose(model, prefix, tried) is not None
            if await self._attempt(out, upstream, budget, elsewhere):
                return

    async def _outgoing(self) -> Outgoing:
        """Read as much of the request as must be known before it can go on."""
        scope, settings = self._scope, self._settings
        body, asked = None, Asked()
        if self._has_body:
            check_codings(scope["headers"])
            body = RequestBody(self._receive, self._access.size_limit, self._note_body_read)
            asked = await self._read_asked(body)
        live = self._live
        trace = Trace(
            live.trace_id if live is not None else self._ids.trace_id(),
            1 if settings.force_sample or live is None else live.trace_flags,
            live is not None and live.parent_span_id is not None,
        )
        return Outgoing(
            scope, body, asked, self._operation, trace, settings.ask_usage, self._access.guarded
        )

    async def _read_asked(self, body: RequestBody) -> Asked:
        """Read ahead; to the end where the upstream depends on a name that has not come yet."""
        scope, settings = self._scope, self._settings
        await body.read_ahead(settings.replay_limit_bytes if self._named else 0)
        encoded = value_of(scope["headers"], b"content-encoding")
        if not self._named or encoded not in (None, b"identity"):
            return Asked()
        kind = value_of(scope["headers"], b"content-type") or b""
        prefix = settings.prefix_affinity_bytes
        asked = read_asked(body.head, body.replayable, kind, prefix)
        if asked.unnamed and self._pool.by_model:
            await body.read_ahead(sys.maxsize)
            asked = read_asked(body.head, body.replayable, kind, prefix)
        if self._live is not None and self._operation and not self._live.prompt:
            self._live.prompt = prompt_text(body.head)
        return asked

    def _note_body_read(self) -> None:
        """A body that streams through is handed over with its last byte."""
        self.body_read = True
        if self._calls and self._calls[-1].answered_mono_ns is None:
            self._calls[-1].handed_mono_ns = self._clock.mono_ns()

    async def _attempt(
        self, out: Outgoing, upstream: Upstream, budget: bool, elsewhere: bool
    ) -> bool:
        """One attempt; False when it gave nothing and another one follows.

        Another one goes to another upstream. It goes to the same one only if the fault
        was the connection's: an old one, which may have been closed while it lay idle.
        """
        call = self._new_call(out, upstream)
        self._pool.begin(upstream)
        healthy: bool | None = None
        try:
            async with asyncio.timeout(self._settings.first_token_timeout_s) as limit:
                healthy = await self._forward(out, upstream, call, elsewhere, limit)
        except Unanswered as none:
            healthy = None if none.stale else False
            call.error_type = none.kind
            if out.repeatable(none.at_work) and (elsewhere or (budget and none.stale)):
                call.superseded = True
                out.after_stale = out.after_stale or none.stale
                return False
            raise none.refusal() from None
        except UpstreamGone:
            healthy = False
            call.error_type = "upstream_disconnect"
            raise
        except Refusal:
            call.error_type = "request_incomplete"
            if self._begun:
                raise UpstreamGone from None
            raise
        except ClientLeft:
            call.error_type = "request_incomplete"
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            healthy = False
            call.error_type = "first_token_timeout"
            raise self._too_late() from None
        finally:
            call.ended_mono_ns = self._clock.mono_ns()
            self._pool.end(upstream, healthy)
        return not call.superseded

    def _too_late(self) -> Exception:
        """No first token in time: 504, or a broken-off stream if its head is gone already."""
        if not self._begun:
            return Refusal(
                504, "first_token_timeout",
                "the upstream gave no first token within the limit (--first-token-timeout)",
            )  # fmt: skip
        if self._live is not None:
            self._live.failure = "first_token_timeout"
        return UpstreamGone()

    async def _forward(
        self,
        out: Outgoing,
        upstream: Upstream,
        call: UpstreamCall,
        may_retry: bool,
        limit: asyncio.Timeout,
    ) -> bool:
        """Send and relay; whether the upstream did well."""
        span_id = call.span_id or 1
        response = await open_attempt(self._client, out, upstream, call, span_id)
        try:
            call.answered_mono_ns = self._clock.mono_ns()
            failed = response.status in self._settings.retry_statuses
            if failed and may_retry and out.repeatable(at_work=True):
                call.http_status = response.status
                call.error_type = str(response.status)
                call.superseded = True
                return False
            self._begun = True
            await self._relay(response, out, call, limit)
            return not failed
        finally:
            response.close() if not call.finished else response.release()

    async def _relay(
        self,
        response: Response,
        out: Outgoing,
        call: UpstreamCall,
        limit: asyncio.Timeout,
    ) -> None:
        relay = Relay(
            response, self._send, self._writing(), call, self._live, self._clock, self._readable,
            out.cut_usage, limit, self._proven,
        )  # fmt: skip
        await relay.run()
        if relay.tap.error is not None:
            call.error_type = relay.tap.error
        elif response.status >= 400:
            call.error_type = str(response.status)

    def _writing(self) -> ConnectionMarks | None:
        """The client's connection, where what is sent goes straight to it."""
        extensions = self._scope.get("extensions", {})
        return None if ENTERED in extensions else extensions.get(EXTENSION)

    def _new_call(self, out: Outgoing, upstream: Upstream) -> UpstreamCall:
        address, port = upstream.address
        asked = out.asked
        call = UpstreamCall(
            operation=self._operation,
            handed_mono_ns=self._clock.mono_ns(),
            span_id=self._ids.span_id(),
            attempt=len(self._calls) + 1,
            upstream=upstream.label,
            address=address,
            port=port,
            provider=upstream.target.provider,
            model=upstream.target.models.get(asked.model, asked.model),
            stream=asked.stream,
            n=asked.n,
            max_tokens=asked.max_tokens,
        )
        self._calls.append(call)
        if self._live is not None:
            self._live.calls.append(call)
        return call
