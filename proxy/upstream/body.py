"""The request's body: read ahead to a limit where it must be known, streamed otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from proxy.middleware import Receive
from proxy.upstream.answers import Refusal
from proxy.upstream.headers import Headers, value_of
from proxy.upstream.places import places, value_at
from proxy.upstream.usage import count_of

PARSE_LIMIT = 256 * 1024
"""Longest body parsed as JSON; in a longer one the few members that matter are looked up."""
_MODEL_FORM = re.compile(rb'(?<![A-Za-z])name="?model"?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,256})\r\n')
ASK_USAGE = b'{"include_usage":true}'
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_PROMPTS = ("messages", "prompt", "input")
_LOOKED_FOR = ("model", "stream", "n", *_LIMITS)
MODEL_LIMIT = 256
"""Most characters of a model's name."""


class ClientLeft(Exception):
    """The client went away before its request was whole."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, as far as the proxy looks.

    ``model_at``: where in the head the model's name is written, its quotes included.
    ``json``: the body is whole and JSON, and an option may be written into it. ``unnamed``:
    the name may stand in what has not been read.
    """

    model: str = ""
    model_at: tuple[int, int] | None = None
    form: bool = False
    unnamed: bool = False
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    prefix: bytes = b""
    json: bool = False


class RequestBody:
    """Bytes read so far and the way to the rest.

    ``replayable``: the whole body is at hand and can be sent again. ``begun``: it was
    streamed, at least in part. Beyond ``limit`` bytes in all the request is refused with 413.
    """

    def __init__(self, receive: Receive, limit: int | None, last: Callable[[], None]) -> None:
        self._receive = receive
        self._limit = limit
        self._last = last
        self._size = 0
        self.head = b""
        self.replayable = False
        self.refusal: Refusal | None = None
        self.left = False
        self.begun = False

    async def read_ahead(self, limit: int) -> None:
        """Read until the end or at least ``limit`` bytes; 0 reads what is there already."""
        parts = [self.head]
        size = len(self.head)
        while True:
            part, more = await self._next()
            parts.append(part)
            size += len(part)
            if not more or size >= limit:
                break
        self.head = b"".join(parts)
        self.replayable = not more

    async def _next(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.left = True
            raise ClientLeft
        part: bytes = message.get("body", b"")
        self._size += len(part)
        if self._limit is not None and self._size > self._limit:
            self.refusal = too_large(self._limit)
            raise self.refusal
        more: bool = message.get("more_body", False)
        if not more:
            self._last()
        return part, more

    async def stream(self, head: bytes) -> AsyncIterator[bytes]:
        """``head`` in the place of what was read, then each further part as it comes; once only."""
        self.begun = True
        if head:
            yield head
        more = True
        while more:
            part, more = await self._next()
            if part:
                yield part


def has_body(headers: Headers) -> bool:
    """The client sends a body, be it an empty one in chunks."""
    length = value_of(headers, b"content-length")
    if length is not None:
        return length != b"0"
    return value_of(headers, b"transfer-encoding") is not None


def check_codings(headers: Headers) -> None:
    """The server takes off the chunks and nothing else; what is left would go on unnamed.

    Raises:
        Refusal: 501.
    """
    coding = value_of(headers, b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise Refusal(501, "transfer_encoding", "the only transfer-encoding of requests is chunked")


def too_large(limit: int) -> Refusal:
    return Refusal(413, "request_too_large", f"the request is larger than the limit of {limit} "
                   "bytes (--max-request-bytes)")  # fmt: skip


def read_asked(head: bytes, whole: bool, content_type: bytes, prefix_bytes: int) -> Asked:
    """What the body asks for; an unreadable one asks for nothing in particular."""
    kind = content_type.split(b";")[0].strip().lower()
    if kind == b"multipart/form-data":
        found = _MODEL_FORM.search(head)
        if found is None:
            return Asked(form=True, unnamed=not whole)
        name = found.group(1).decode("utf-8", "replace")
        return Asked(model=name, model_at=found.span(1), form=True)
    if whole and len(head) <= PARSE_LIMIT:
        return _parsed(head, prefix_bytes)
    return _looked_up(head, whole, prefix_bytes)


def _looked_up(head: bytes, whole: bool, prefix_bytes: int) -> Asked:
    """As :func:`_parsed`, of a body that is long or not all there."""
    found = places(head)
    values = {n: v for n in _LOOKED_FOR if n in found and (v := value_at(head, found[n])) is not None}
    told = {name: value for name, (value, _) in values.items()}
    model = told.get("model")
    prompt = next((found[n] for n in _PROMPTS if n in found), 0)
    return Asked(
        model=model[:MODEL_LIMIT] if isinstance(model, str) else "",
        model_at=(found["model"], values["model"][1]) if isinstance(model, str) else None,
        stream=told.get("stream") is True,
        n=max(1, count_of(told.get("n")) or 1),
        max_tokens=_first_count(told),
        prefix=head[prompt : prompt + prefix_bytes],
        json=whole and bool(found),
        unnamed=bool(found) and not whole and "model" not in told,
    )


def _first_count(told: Mapping[str, object]) -> int | None:
    return next((c for n in _LIMITS if (c := count_of(told.get(n))) is not None), None)


def _parsed(head: bytes, prefix_bytes: int) -> Asked:
    try:
        body = json.loads(head)
    except (ValueError, RecursionError):
        return Asked()
    if not isinstance(body, dict):
        return Asked()
    model = body.get("model")
    prompt = next((body[n] for n in _PROMPTS if n in body), None)
    prefix = json.dumps(prompt).encode()[:prefix_bytes] if prefix_bytes else b""
    return Asked(
        model=model[:MODEL_LIMIT] if isinstance(model, str) else "",
        stream=body.get("stream") is True,
        n=max(1, count_of(body.get("n")) or 1),
        max_tokens=_first_count(body),
        prefix=prefix,
        json=True,
    )


def with_model(head: bytes, asked: Asked, model: str) -> bytes:
    """``head`` with the model's name replaced in place; every other byte stays."""
    place = asked.model_at or _model_place(head)
    if place is None:
        return head
    name = model if asked.form else json.dumps(model)
    return head[: place[0]] + name.encode() + head[place[1] :]


def _model_place(head: bytes) -> tuple[int, int] | None:
    start = places(head).get("model")
    value = value_at(head, start) if start is not None else None
    return (start, value[1]) if start is not None and value is not None else None


def with_usage(body: bytes) -> bytes | None:
    """``body`` asking for the usage chunk; None where the client said itself what it wants."""
    found = places(body)
    if not found:
        return None
    if (start := found.get("stream_options")) is None:
        at = body.index(b"{") + 1
        return body[:at] + b'"stream_options":' + ASK_USAGE + b"," + body[at:]
    if (value := value_at(body, start)) is None:
        return None
    options, end = value
    if options is None:
        return body[:start] + ASK_USAGE + body[end:]
    if not isinstance(options, dict) or "include_usage" in options:
        return None
    comma = b"," if options else b""
    return body[: start + 1] + ASK_USAGE[1:-1] + comma + body[start + 1 :]
