"""OTLP/HTTP as a pure ASGI application.

Answers follow the OTLP specification: 200 with what was rejected, 400 and 413 for
bodies that must not be sent again, 503 with Retry-After where sending again helps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from collectors.counts import Counts
from collectors.receive.access import Tokens
from collectors.receive.decode import JSON, PROTOBUF, BadBody, decode, decompress
from collectors.receive.plain import plain_spans
from collectors.receive.recent import RecentBodies
from collectors.receive.rows import FUTURE_NS, Batch, TimeWindow
from collectors.receive.signals import SIGNALS, Signal
from collectors.settings import CollectorSettings
from collectors.spool.origin import Origin
from tracer.clock import Clock

ASGIMessage = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
RETRY_AFTER_S = 1
THREAD_FROM_BYTES = 256 * 1024
"""Larger bodies, and compressed ones, which may be far larger, do not hold up the event loop."""

JSON_COST = 16
"""How much longer than protobuf a byte of JSON takes to read, about."""


class Intake(Protocol):
    """Who takes batches: in memory, or on disk first. False: come again later."""

    def offer(self, batch: Batch, size: int, origin: Origin | None = None) -> bool: ...


class Careful(Protocol):
    """Who takes spans as bodies; ``careful``: bodies that it cannot read came lately."""

    @property
    def careful(self) -> bool: ...


class OtlpHttp:
    """The application. Bodies are bounded before and after decompression."""

    def __init__(
        self,
        settings: CollectorSettings,
        writer: Intake,
        counts: Counts,
        clock: Clock,
        recent: Mapping[bytes, Message] | None = None,
        tokens: Tokens | None = None,
        *,
        plain: Careful | None = None,
    ) -> None:
        """``plain``: the writer takes spans without rows, where the body allows."""
        self._plain = plain
        self._settings = settings
        self._writer = writer
        self._counts = counts
        self._clock = clock
        self._tokens = tokens or Tokens(())
        self._recent = RecentBodies()
        for key, answer in (recent or {}).items():
            self._recent.remember(key, answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {k.lower(): v.decode("latin-1") for k, v in scope["headers"]}
        json_wanted = _is_json(headers)
        try:
            self._tokens.check(headers.get(b"authorization", ""))
            signal = _route(scope)
            body = await self._body(receive, headers)
            answer = await self.take(signal, body, headers)
        except BadBody as refusal:
            await _refuse(send, refusal.status, refusal.message, json_wanted)
        else:
            await _reply(send, 200, _encode(answer, json_wanted), json_wanted)

    async def _body(self, receive: Receive, headers: dict[bytes, str]) -> bytes:
        limit = self._settings.max_body_bytes
        said = headers.get(b"content-length", "")
        if said.isascii() and said.isdigit() and int(said) > limit:
            raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BadBody(400, "the client left before the body was whole")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise BadBody(413, f"the body has more than {limit} bytes: send smaller batches")
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def take(self, signal: Signal, body: bytes, headers: dict[bytes, str]) -> Message:
        """The answer to one export request; content type and encoding are in ``headers``.

        Raises:
            BadBody: with the HTTP status that says why it was not taken.
        """
        key = RecentBodies.key(signal.name, body)
        if (before := self._recent.answer(key)) is not None:
            return before
        size = len(body) * (JSON_COST if _is_json(headers) else 1)
        if size >= THREAD_FROM_BYTES or headers.get(b"content-encoding"):
            read = await asyncio.to_thread(self._read, signal, body, headers)
        else:
            read = self._read(signal, body, headers)
        if (before := self._recent.answer(key)) is not None:  # a copy was quicker meanwhile
            return before
        batch, plain, window = read
        rejected = sum(batch.refused.values())
        origin = Origin(signal.name, plain, window, key.hex(), dict(batch.refused))
        if self._settings.spool.fsync == "always":
            taken = await asyncio.to_thread(self._writer.offer, batch, len(plain), origin)
        else:
            taken = self._writer.offer(batch, len(plain), origin)
        if not taken:
            raise BadBody(503, "the store cannot keep up or is down: send again later")
        self._counts.receive(signal.name, rejected)
        for reason, n in batch.refused.items():
            self._counts.refuse(signal.name, n, reason)
        answer = response_of(signal, batch.refused)
        if batch.kept:
            self._recent.remember(key, answer)
        return answer

    def _read(
        self, signal: Signal, body: bytes, headers: dict[bytes, str]
    ) -> tuple[Batch, bytes, tuple[int, int]]:
        """The rows, the body as protobuf (of the size that the queue counts), their window."""
        kind = headers.get(b"content-type", "")
        plain = decompress(
            body, headers.get(b"content-encoding", ""), self._settings.max_body_bytes
        )
        window = self._window()
        if self._plain is not None and signal.name == "spans" and not _is_json(headers):
            spans = plain_spans(plain, window, careful=self._plain.careful)
            if spans:
                return Batch(plain=spans), plain, (window.oldest_unix_ns, window.newest_unix_ns)
        message, unread = decode(plain, kind, signal.request)
        batch = signal.to_batch(message, window)
        if unread:
            batch.refused["malformed"] += unread
        if unread or _is_json(headers):
            plain = message.SerializeToString()
        return batch, plain, (window.oldest_unix_ns, window.newest_unix_ns)

    def _window(self) -> TimeWindow:
        now = self._clock.unix_ns()
        keep = self._settings.store.ttl_days * 86_400 * 10**9
        return TimeWindow(max(1, now - keep), now + FUTURE_NS)


def response_of(signal: Signal, refused: Mapping[str, int]) -> Message:
    """Success, or a partial one that says how many were rejected and why."""
    answer: Any = signal.response()
    if rejected := sum(refused.values()):
        why = ", ".join(f"{reason}: {n}" for reason, n in sorted(refused.items()))
        partial: Any = answer.partial_success
        setattr(partial, signal.rejected_field, rejected)
        partial.error_message = f"rejected {rejected} ({why})"
    made: Message = answer
    return made


def _is_json(headers: dict[bytes, str]) -> bool:
    return headers.get(b"content-type", "").split(";")[0].strip().lower() == JSON


def _route(scope: Scope) -> Signal:
    signal = SIGNALS.get(scope["path"].rstrip("/"))
    if signal is None:
        raise BadBody(404, f"OTLP is taken on {', '.join(SIGNALS)}")
    if scope["method"] != "POST":
        raise BadBody(405, "OTLP is sent with POST")
    return signal


def _encode(message: Message, json_wanted: bool) -> bytes:
    if not json_wanted:
        body: bytes = message.SerializeToString()
        return body
    from google.protobuf import json_format

    return str(json_format.MessageToJson(message, indent=None)).encode()


async def _refuse(send: Send, status: int, text: str, json_wanted: bool) -> None:
    body = (
        json.dumps({"code": status, "message": text}).encode()
        if json_wanted
        else Status(message=text).SerializeToString()
    )
    await _reply(send, status, body, json_wanted)


async def _reply(send: Send, status: int, body: bytes, json_wanted: bool) -> None:
    headers = [
        (b"content-type", (JSON if json_wanted else PROTOBUF).encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 405:
        headers.append((b"allow", b"POST"))
    if status in (429, 503):
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
