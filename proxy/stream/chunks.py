"""What one streamed chunk says: does it carry a token, the answer, an error, the end?

Knows the chunk forms of OpenAI's chat and text completions. A chunk that is not
understood says nothing; it is never an error of the request.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, NamedTuple

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
_PHRASES = frozenset(status.phrase for status in HTTPStatus)
DONE = b"[DONE]"
TOKEN_FIELDS = ("content", "reasoning", "reasoning_content", "refusal", "tool_calls", "audio",
                "function_call")
"""Delta members that hold generated tokens."""


class ChunkFacts(NamedTuple):
    """``token``: a generated token of any kind; ``answer``: visible content of the answer.

    ``blank`` marks a chunk with the right members but empty text, which may be a
    real token whose text is still held back by the detokeniser: only somebody who
    counts tokens can tell. ``error`` is an error object's type.
    """

    token: bool = False
    answer: bool = False
    blank: bool = False
    done: bool = False
    error: str | None = None


NOTHING = ChunkFacts()


def read_chunk(data: bytes) -> ChunkFacts:
    """Facts of one event's data; ``NOTHING`` where it is not a known chunk."""
    if data.strip() == DONE:
        return ChunkFacts(done=True)
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        return NOTHING
    if not isinstance(chunk, dict):
        return NOTHING
    if chunk.get("error"):
        return ChunkFacts(error=error_type(chunk["error"]))
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return NOTHING
    facts = [choice_facts(choice) for choice in choices if isinstance(choice, dict)]
    return ChunkFacts(
        token=any(f.token for f in facts),
        answer=any(f.answer for f in facts),
        blank=any(f.blank for f in facts),
    )


def choice_facts(choice: dict[str, Any]) -> ChunkFacts:
    """What one choice of a chunk carries."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return _delta(delta)
    text = choice.get("text")
    if isinstance(text, str):
        return ChunkFacts(token=bool(text), answer=bool(text), blank=not text)
    return NOTHING


def _delta(delta: dict[str, Any]) -> ChunkFacts:
    """The role prelude carries no token; visible content is what is not only white space."""
    token = any(delta.get(name) for name in TOKEN_FIELDS)
    content = delta.get("content")
    answer = isinstance(content, str) and bool(content.strip())
    blank = not token and "role" not in delta and content == ""
    return ChunkFacts(token=token, answer=answer, blank=blank)


def error_type(error: object) -> str:
    """The type or code of an error object, "error" where it has none."""
    if isinstance(error, dict):
        return identifier(error.get("type")) or identifier(error.get("code")) or "error"
    return "error"


def identifier(value: object) -> str:
    """``value`` if it is a name, a number or HTTP's own words for a status.

    "" for free text, which may quote a prompt.
    """
    text = str(value) if isinstance(value, int | str) else ""
    return text if _IDENTIFIER.fullmatch(text) or text in _PHRASES else ""
