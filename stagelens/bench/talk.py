"""What is said: conversations of turns, and their requests as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagelens.bench.wire import Target

Content = str | list[dict[str, Any]]
"""A text, or OpenAI's parts: texts, pictures, sound."""
Message = dict[str, Any]
"""``role`` and ``content``, which is a :data:`Content`."""


def text_of(content: Content) -> str:
    """The words alone: of parts, those of its text parts, a line each."""
    if isinstance(content, str):
        return content
    return "\n".join(one["text"] for one in content if isinstance(one.get("text"), str))


def has_others(content: Content) -> bool:
    """Whether parts of it are no texts."""
    return not isinstance(content, str) and any(not isinstance(one.get("text"), str) for one in content)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says next, and how long the answer is to be.

    ``input_tokens`` is the wanted length of the whole prompt; ``None`` where it is not
    known (a text from a file, a later turn).
    """

    messages: tuple[Message, ...]
    output_tokens: int
    input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns that follow one another; ``stream`` overrides the load's own setting."""

    turns: tuple[Turn, ...]
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Speech:
    """How a server wants to be asked.

    ``own_traces``: it names no trace in its answers, so requests bring a ``traceparent``.
    """

    target: Target
    model: str
    endpoint: str = "chat"
    ignore_eos: bool = True
    stream_usage: bool = True
    length_field: str = "max_tokens"
    key: str | None = None
    body: Mapping[str, Any] | None = None
    own_traces: bool = False

    def request(
        self, history: list[Message], output_tokens: int, *, stream: bool, tags: str = "",
        traceparent: str = "",
    ) -> bytes:  # fmt: skip
        """The whole HTTP request."""
        body: dict[str, Any] = {
            "model": self.model, self.length_field: output_tokens, "stream": stream,
        }  # fmt: skip
        if self.endpoint == "chat":
            body["messages"] = history
        else:
            body["prompt"] = "\n".join(text_of(one["content"]) for one in history)
        if self.ignore_eos:
            body["ignore_eos"] = True
        if stream and self.stream_usage:
            body["stream_options"] = {"include_usage": True}
        body.update(self.body or {})
        path = "chat/completions" if self.endpoint == "chat" else "completions"
        return self._http("POST", f"/{path}", json.dumps(body).encode(), tags, traceparent)

    def models(self) -> bytes:
        """The request for the list of models."""
        return self._http("GET", "/models", b"", "")

    def _http(
        self, method: str, path: str, body: bytes, tags: str, traceparent: str = ""
    ) -> bytes:
        at = self.target
        host = f"[{at.host}]" if ":" in at.host else at.host
        lines = [
            f"{method} {at.base}{path} HTTP/1.1",
            f"Host: {host}:{at.port}",
            "Accept: */*",
            "Accept-Encoding: identity",
            "User-Agent: stagelens-bench",
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        if tags:
            lines.append(f"x-stagelens-tags: {tags}")
        if traceparent:
            lines.append(f"traceparent: {traceparent}")
        return "\r\n".join([*lines, "", ""]).encode() + body
