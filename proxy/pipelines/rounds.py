"""One round: the plain application is called in ASGI terms, and its answer read as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.middleware import App, Message, Receive, Scope
from proxy.pipelines.calls import StreamedCalls, whole_calls
from proxy.pipelines.inner import inner_scope
from proxy.pipelines.outward import Outward
from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.text import encoded
from proxy.pipelines.tools.kit import ToolCall
from proxy.request.live import LiveRequest
from proxy.stream.chunks import identifier
from proxy.stream.sse import SseReader
from proxy.upstream.decode import Decoder, Identity, Unreadable, decoder_for
from proxy.upstream.headers import value_of

_OF_TOKENS = frozenset({"logprobs", "token_ids"})
"""Of a choice: told once, with the text of the same tokens."""
REASONING = ("reasoning_content", "reasoning")
"""Members of a message that hold the model's thinking; several providers want it back with its calls."""
BETWEEN = "\n\n"
"""Between the texts of two rounds."""
CUT = frozenset({"length", "content_filter"})
"""Reasons to finish that leave an answer in the middle."""


class _Stop(Exception):
    """Thrown into the application from its ``send``: its answer is of no use any more."""


@dataclass(slots=True)
class RoundResult:
    """What a round said. ``whole``: its answer's JSON document, where it was no stream, without
    the pipeline's own calls. ``cut``: a limit ended it, maybe in the middle of a call.
    """

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    theirs: bool = False
    usage: dict[str, Any] | None = None
    finish: dict[str, Any] | None = None
    whole: dict[str, Any] | None = None
    cut: bool = False
    reasoning: dict[str, Any] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether the answer ends here: the client's turn, no calls, or calls cut short."""
        return self.theirs or not self.calls or self.cut


class Round:
    """Made for one call of the model, ``run`` once."""

    def __init__(
        self,
        out: Outward,
        live: LiveRequest,
        is_theirs: Callable[[str], bool],
        most_bytes: int,
        apart: bool = False,
    ) -> None:
        """``is_theirs`` tells by name whether a tool is the client's own; ``apart``: the client
        has text of an earlier round.
        """
        self._out = out
        self._live = live
        self._is_theirs = is_theirs
        self._most = most_bytes
        self._apart = apart
        self._size = 0
        self._status = 0
        self._stream = False
        self._reader = SseReader()
        self._decoder: Decoder = Identity()
        self._body = bytearray()
        self._ended = False
        self._calls = StreamedCalls(is_theirs)
        self._index: object = None
        self._done = False
        self._retry_after: bytes | None = None
        self._problem: PipelineProblem | None = None
        self._clocks = live.clocks
        self._text: list[str] = []
        self.result = RoundResult()

    async def run(
        self, app: App, scope: Scope, receive: Receive, body: dict[str, Any], number: int
    ) -> RoundResult | None:
        """The round's result; None where the application broke off without an end.

        Raises:
            PipelineProblem: the model's answer is an error or unreadable.
        """
        data = encoded(body)
        given = False

        async def inner_receive() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": data, "more_body": False}
            return await receive()

        try:
            await app(inner_scope(scope, len(data), number), inner_receive, self._take)
        except Exception:
            if self._problem is None:
                raise
        finally:
            self._live.clocks = self._clocks
        if self._problem is not None:
            raise self._problem
        if not self._ended:
            return None
        self._finish()
        return self.result

    async def _take(self, message: Message) -> None:
        if self._problem is not None:
            return
        try:
            if message["type"] == "http.response.start":
                self._take_start(message)
            elif message["type"] == "http.response.body":
                for piece in self._decoder.feed(message.get("body", b"")):
                    await self._take_body(piece)
                self._ended = self._ended or not message.get("more_body", False)
        except Unreadable:
            self._problem = PipelineProblem(502, "bad_answer", "the model's answer cannot be unpacked")
            raise _Stop from None
        except PipelineProblem as problem:
            self._problem = problem
            raise _Stop from None

    def _take_start(self, message: Message) -> None:
        self._status = message["status"]
        headers = message["headers"]
        kind = value_of(headers, b"content-type") or b""
        self._retry_after = value_of(headers, b"retry-after")
        self._stream = self._status == 200 and kind.lower().startswith(b"text/event-stream")
        self._live.clocks = self._clocks  # a forwarder set its own, which sees one round
        # some servers pack an answer though nobody asked for it
        self._decoder = decoder_for((value_of(headers, b"content-encoding") or b"").decode("latin-1"))

    async def _take_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            raise PipelineProblem(
                502, "answer_too_large", f"the model's answer is longer than {self._most} bytes"
            )
        if not self._stream:
            self._body += part
            return
        for event in self._reader.feed(part):
            if event.data.strip() == b"[DONE]":
                self._done = True
            else:
                await self._event(_parsed(event.data))

    async def _event(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            raise _of_error(chunk, 502)
        if isinstance(chunk.get("usage"), dict):
            self.result.usage = chunk["usage"]
        choice = self._choice_of(chunk.get("choices"))
        if choice is None:
            return
        delta = choice.get("delta")
        delta = dict(delta) if isinstance(delta, dict) else {}
        asked = delta.pop("tool_calls", None)
        theirs = self._calls.take(asked if isinstance(asked, list) else [asked]) if asked else []
        self._hear(delta)
        self._calls.take_legacy(delta)
        if theirs:
            delta["tool_calls"] = theirs
        if "role" in delta and not self._out.role_due():
            del delta["role"]
            if delta.get("content") == "":
                del delta["content"]
        reason = choice.get("finish_reason")
        plain = {k: v for k, v in chunk.items() if k != "usage"}
        goes_on = any(v is not None for v in delta.values())
        if reason is not None:
            told = {k: v for k, v in choice.items() if not (goes_on and k in _OF_TOKENS)}
            self.result.finish = {**plain, "choices": [{**told, "delta": {}}]}
            self.result.cut = reason in CUT
        if goes_on:
            await self._out.chunk(
                {**plain, "choices": [{**choice, "delta": delta, "finish_reason": None}]}
            )

    def _choice_of(self, choices: object) -> dict[str, Any] | None:
        """The one that the client gets: the first that is told, in all chunks."""
        told = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
        if self._index is None and told:
            self._index = told[0].get("index") or 0
        return next((c for c in told if (c.get("index") or 0) == self._index), None)

    def _hear(self, delta: dict[str, Any]) -> None:
        """Keep what a piece says; the first text after an earlier round's goes on with a blank line."""
        for name in REASONING:
            if isinstance(piece := delta.get(name), str):
                self.result.reasoning[name] = self.result.reasoning.get(name, "") + piece
        text = delta.get("content")
        if not isinstance(text, str):
            return
        if text and self._apart and not any(self._text):
            delta["content"] = BETWEEN + text
        self._text.append(text)

    def _finish(self) -> None:
        result = self.result
        if not self._stream:
            self._finish_whole()
            return
        if not self._done and result.finish is None:
            raise PipelineProblem(502, "model_gone", "the model's stream ended in the middle")
        result.text = "".join(self._text)
        result.theirs = self._calls.theirs
        result.calls = self._calls.own()
        _refuse_unread(result, told=self._calls.told)
        if result.finish is not None:
            _name_end(result.finish["choices"][0], result.theirs)

    def _finish_whole(self) -> None:
        body = _parsed(bytes(self._body), self._status)
        if self._status != 200 or body.get("error"):
            raise _of_error(body, self._status if self._status >= 400 else 502, self._retry_after)
        result = self.result
        result.whole = body
        if isinstance(body.get("usage"), dict):
            result.usage = body["usage"]
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise PipelineProblem(502, "bad_answer", "the model's answer holds no message")
        body["choices"] = [choice]
        content = message.get("content")
        result.text = content if isinstance(content, str) else ""
        result.reasoning = {n: message[n] for n in REASONING if message.get(n) is not None}
        result.calls, theirs = whole_calls(message, self._is_theirs)
        self._calls.take_legacy(message)
        result.theirs = bool(theirs) or self._calls.theirs
        _refuse_unread(result, told=bool(message.get("tool_calls")) or self._calls.told)
        result.cut = choice.get("finish_reason") in CUT
        if theirs:
            message["tool_calls"] = theirs
        elif message.get("tool_calls"):
            del message["tool_calls"]
        _name_end(choice, result.theirs)


def _refuse_unread(result: RoundResult, *, told: bool) -> None:
    """PipelineProblem where all that a model says is calls that are none."""
    if told and not (result.calls or result.theirs or result.text.strip()):
        raise PipelineProblem(502, "bad_answer", "the model's tool calls cannot be read")


def _name_end(choice: dict[str, Any], theirs: bool) -> None:
    """An answer that shows the client no call does not end in calls."""
    if choice.get("finish_reason") in ("tool_calls", "function_call") and not theirs:
        choice["finish_reason"] = "stop"


def as_chunk(whole: dict[str, Any], before: str) -> dict[str, Any]:
    """A whole answer's message as one chunk of a stream that has begun, after the text ``before``."""
    choice = whole["choices"][0]
    delta = {k: v for k, v in choice["message"].items() if k != "role" and v is not None}
    content = delta.get("content")
    if isinstance(content, str) or (before and content is None):
        delta["content"] = before + (content or "")
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {**call, "index": index} if isinstance(call, dict) else call
            for index, call in enumerate(delta["tool_calls"])
        ]
    end = choice.get("finish_reason") or "stop"
    return {"object": "chat.completion.chunk", "id": whole.get("id"), "created": whole.get("created"),
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}  # fmt: skip


def _parsed(data: bytes, status: int = 200) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise PipelineProblem(
            status if status >= 400 else 502, "bad_answer", "the model's answer cannot be read"
        )
    return body


def _of_error(
    body: dict[str, Any], status: int, retry_after: bytes | None = None
) -> PipelineProblem:
    """The model's own error, in its words."""
    error = body.get("error", body)
    error = error if isinstance(error, dict) else {"message": str(error)}
    return PipelineProblem(
        status, identifier(error.get("type")) or "model_error",
        str(error.get("message") or "the model call failed")[:2000], retry_after,
    )  # fmt: skip
