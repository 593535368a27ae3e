"""Reading an answer as it comes, into a :class:`Sample`."""

from __future__ import annotations

import json
from typing import Any

from dashboards.visible import visible
from proxy.stream.sse import SseEvent, SseReader
from proxy.upstream.decode import Decoder, Unreadable, decoder_for
from stagelens.bench.alike import Alike
from stagelens.bench.sample import Sample

_JSON = json.JSONDecoder()
MOST_SAID = 300
MOST_BODY = 64 * 1024 * 1024
MOST_TOKENS = 2**40
"""A larger count is no count."""


class Answer:
    """Takes the parts of one response. ``text`` is the answer's words where they are kept."""

    def __init__(self, sample: Sample, *, keep_text: bool) -> None:
        self._sample = sample
        self._keep = keep_text
        self._decoder: Decoder | None = None
        self._events = SseReader()
        self._whole: list[bytes] = []
        self._held = 0
        self._sse = self._untyped = False
        self._done = False
        self._last: dict[int, int] = {}  # by choice: when its latest token came
        self._alike = Alike()
        self._at_rest = False  # a stream, and no event of it is begun
        self._finished: set[int] = set()
        self.text: list[str] = []

    def head(self, status: int, headers: dict[bytes, bytes], now_ns: int) -> None:
        """The status line and headers have come."""
        one = self._sample
        one.status, one.head_ns = status, now_ns
        if told := headers.get(b"x-stagelens-trace-id"):
            one.trace_id = told.decode("latin-1")
        if (wait := headers.get(b"retry-after", b"")).isdigit():
            one.retry_after_s = float(wait[:9])
        kind = headers.get(b"content-type", b"").lower()
        well = 200 <= status < 300
        self._sse = well and b"text/event-stream" in kind
        self._untyped = well and one.stream and not kind
        self._decode(headers.get(b"content-encoding", b"").decode("latin-1"))

    def _decode(self, coding: str) -> None:
        """Some compress what nobody asked them to."""
        if coding.strip().lower() not in ("", "identity"):
            try:
                self._decoder = decoder_for(coding)
            except Unreadable:
                self._fail("encoded", f"the answer came as {coding}, which was not asked for")

    def body(self, data: bytes, now_ns: int) -> None:
        """A part of the body, read from the socket at ``now_ns``."""
        if self._at_rest and (said := self._alike.word(data)):
            self._token(said, self._alike.index, now_ns)
            return
        if not self._sample.first_chunk_ns:
            self._sample.first_chunk_ns = now_ns
        if self._decoder is None:
            self._part(data, now_ns)
            return
        try:
            for piece in self._decoder.feed(data):
                self._part(piece, now_ns)
        except Unreadable:
            self._fail("encoded", "the answer is not in the encoding that it names")

    def _part(self, data: bytes, now_ns: int) -> None:
        if self._untyped and data:
            self._untyped = False
            self._sse = not data.lstrip().startswith((b"{", b"["))
        if self._sse:
            self._stream(data, now_ns)
            return
        self._held += len(data)
        if self._held <= MOST_BODY:
            self._whole.append(data)

    def _stream(self, data: bytes, now_ns: int) -> None:
        if data.find(b"\n") == len(data) - 2 and _is_plain(data) and self._events.at_rest:
            event = self._data(data[6:-2], now_ns)
            if event is not None and self._decoder is None:
                self._at_rest = True
                self._alike.learn(data, event)
            return
        for told in self._events.feed(data):
            self._event(told, now_ns)
        self._at_rest = self._decoder is None and self._events.at_rest

    def ended(self, now_ns: int) -> None:
        """The response is whole, by its own framing."""
        one = self._sample
        one.end_ns = now_ns
        body = self.raw
        if not 200 <= one.status < 300:
            self._fail(f"http_{one.status}", body.decode("utf-8", "replace"))
        elif self._sse:
            one.streamed = True
            self._part(b"\n\n", now_ns)  # the last line may have no end
            if not self._done and not self._all_finished:
                self._fail("cut_stream", "the stream ended without a finish reason or [DONE]")
        else:
            self._document(body)

    @property
    def raw(self) -> bytes:
        """The body of an answer that was no stream."""
        return b"".join(self._whole)

    def _event(self, told: SseEvent, now_ns: int) -> None:
        if told.event == "error":
            self._fail("stream_error", told.data.decode("utf-8", "replace"))
        elif data := told.data.strip():
            self._data(data, now_ns)

    def _data(self, data: bytes, now_ns: int) -> dict[str, Any] | None:
        """The event, where it could be read."""
        if data == b"[DONE]":
            self._done = True
            return None
        try:
            event: dict[str, Any] = _parsed(data)
            if event.get("error"):
                self._fail("stream_error", str(event["error"]))
            for choice in event.get("choices") or ():
                self._choice(choice, now_ns)
            self._usage(event.get("usage"))
        except (ValueError, AttributeError, TypeError, RecursionError):
            self._fail("bad_event", data.decode("utf-8", "replace"))
            return None
        return event

    def _choice(self, choice: dict[str, Any], now_ns: int) -> None:
        index = choice.get("index") or 0
        if said := _words(choice.get("delta") or choice):
            self._token(said, index, now_ns)
        if reason := choice.get("finish_reason"):
            self._sample.finish = _told(reason)
            self._finished.add(index)

    def _token(self, said: str, index: int, now_ns: int) -> None:
        one = self._sample
        before_ns = self._last.get(index)
        if before_ns is None:
            one.choices += 1
            one.first_token_ns = one.first_token_ns or now_ns
        else:
            one.gaps.append(now_ns - before_ns)
        self._last[index] = one.last_token_ns = now_ns
        one.chunks += 1
        if self._keep and not index:
            self.text.append(said)

    @property
    def _all_finished(self) -> bool:
        """Each choice that said something, and at least one."""
        return bool(self._finished) and self._finished >= self._last.keys()

    def _document(self, body: bytes) -> None:
        try:
            told = json.loads(body)
            choice = told["choices"][0]
            self._sample.finish = _told(choice.get("finish_reason") or "")
            self.text.append(_words(choice.get("message") or choice))
            self._sample.said_something = any(_words(c.get("message") or c) for c in told["choices"])
            self._usage(told.get("usage"))
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
            self._fail("bad_answer", body.decode("utf-8", "replace"))

    def _usage(self, usage: dict[str, Any] | None) -> None:
        if not usage:
            return
        one = self._sample
        one.input_tokens = _count(usage.get("prompt_tokens"), one.input_tokens)
        one.output_tokens = _count(usage.get("completion_tokens"), one.output_tokens)
        details = usage.get("prompt_tokens_details") or {}
        one.cached_tokens = _count(details.get("cached_tokens"), one.cached_tokens)

    def _fail(self, kind: str, said: str) -> None:
        if not self._sample.error:
            self._sample.error = kind
            self._sample.said = _told(said)


def _told(words: object) -> str:
    """What a server says, on one line and with nothing in it that a terminal obeys."""
    return visible(" ".join(str(words).split())[:MOST_SAID])[:MOST_SAID]


def _parsed(data: bytes) -> Any:  # noqa: ANN401
    """As ``json.loads``, which first looks for other encodings than UTF-8.

    Raises:
        ValueError: it is no JSON.
    """
    text = data.decode().strip()
    value, end = _JSON.raw_decode(text)
    if end != len(text):
        raise ValueError("more than one value")
    return value


def _is_plain(data: bytes) -> bool:
    """One event of one line, as servers write them: it needs no reader of event streams."""
    return data.startswith(b"data: ") and data.endswith(b"\n\n") and b"\r" not in data


def _words(delta: dict[str, Any]) -> str:
    """Content, reasoning or tool-call text: any of it is a token; the role prelude is none."""
    said = delta.get("content") or delta.get("text")
    said = said or delta.get("reasoning_content") or delta.get("reasoning")
    if not said and (calls := delta.get("tool_calls")):
        function = calls[0].get("function") or {}
        said = function.get("arguments") or function.get("name")
    return said if isinstance(said, str) else ""


def _count(value: object, before: int | None) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else before
