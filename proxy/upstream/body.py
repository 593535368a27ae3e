"""The request's body: read ahead to a limit where it must be known, streamed otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from proxy.middleware import Receive
from proxy.upstream.answers import Refusal
from proxy.upstream.usage import count_of

PARSE_LIMIT = 256 * 1024
"""Longest body parsed as JSON; of a longer one the model's name is found by pattern."""
_MODEL_JSON = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_MODEL_FORM = re.compile(rb'name="?model"?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,256})\r\n')
_SPACE = re.compile(r"[ \t\r\n]*")


class ClientLeft(Exception):
    """The client went away before its request was whole."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, as far as the proxy looks."""

    model: str = ""
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    prefix: bytes = b""
    json: bool = False


class RequestBody:
    """Bytes read so far and the way to the rest.

    ``replayable``: the whole body is at hand and can be sent again. Beyond
    ``limit`` bytes in all the request is refused with 413.
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

    async def read_ahead(self, limit: int) -> None:
        """Read until the end or at least ``limit`` bytes; 0 reads what is there already."""
        parts: list[bytes] = []
        size = 0
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

    async def stream(self) -> AsyncIterator[bytes]:
        """The head, then each further part as it comes; once only."""
        if self.head:
            yield self.head
        more = True
        while more:
            part, more = await self._next()
            if part:
                yield part


def too_large(limit: int) -> Refusal:
    return Refusal(413, "request_too_large", f"the request is larger than the limit of {limit} "
                   "bytes (--max-request-bytes)")  # fmt: skip


def read_asked(head: bytes, whole: bool, content_type: bytes, prefix_bytes: int) -> Asked:
    """What the body asks for; an unreadable one asks for nothing in particular."""
    kind = content_type.split(b";")[0].strip().lower()
    if kind == b"multipart/form-data":
        found = _MODEL_FORM.search(head)
        return Asked(model=found.group(1).decode("utf-8", "replace") if found else "")
    if whole and len(head) <= PARSE_LIMIT:
        return _parsed(head, prefix_bytes)
    model = _MODEL_JSON.search(head)
    if model is None:
        return Asked()
    try:
        return Asked(model=json.loads(model.group(1))[:256], prefix=head[:prefix_bytes])
    except ValueError:
        return Asked()


def _parsed(head: bytes, prefix_bytes: int) -> Asked:
    try:
        body = json.loads(head)
    except (ValueError, RecursionError):
        return Asked()
    if not isinstance(body, dict):
        return Asked()
    model = body.get("model")
    limits = (body.get(n) for n in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    prompt = next((body[n] for n in ("messages", "prompt", "input") if n in body), None)
    prefix = json.dumps(prompt).encode()[:prefix_bytes] if prefix_bytes else b""
    return Asked(
        model=model[:256] if isinstance(model, str) else "",
        stream=body.get("stream") is True,
        n=max(1, count_of(body.get("n")) or 1),
        max_tokens=next((c for c in map(count_of, limits) if c is not None), None),
        prefix=prefix,
        json=True,
    )


def members(text: str) -> dict[str, tuple[int, int]]:
    """Where the value of each top-level member of a JSON object stands: key to (start, end).

    Raises:
        ValueError: ``text`` is no JSON object.
    """
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    found: dict[str, tuple[int, int]] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, at)
        found[str(key)] = (at, end)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def with_model(body: bytes, model: str) -> bytes:
    """``body`` with its model's name replaced in place; every other byte stays."""
    text = body.decode()
    found = members(text)
    if "model" not in found:
        return body
    start, end = found["model"]
    return (text[:start] + json.dumps(model) + text[end:]).encode()


def with_usage(body: bytes) -> bytes | None:
    """``body`` asking for the usage chunk; None where the client said itself what it wants."""
    text = body.decode()
    found = members(text)
    if "stream_options" not in found:
        at = text.index("{") + 1
        comma = "," if found else ""
        return (text[:at] + '"stream_options":{"include_usage":true}' + comma + text[at:]).encode()
    start, end = found["stream_options"]
    options = json.loads(text[start:end])
    if options is None:
        return (text[:start] + '{"include_usage":true}' + text[end:]).encode()
    if not isinstance(options, dict) or "include_usage" in options:
        return None
    comma = "," if options else ""
    return (text[: start + 1] + '"include_usage":true' + comma + text[start + 1 :]).encode()
