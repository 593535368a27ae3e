"""What one choice of a streamed chunk says: does it carry a token, the answer?

Knows the chunk forms of OpenAI's chat and text completions. A chunk that is not
understood says nothing; it is never an error of the request.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, NamedTuple

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
_PHRASES = frozenset(status.phrase for status in HTTPStatus)
DONE = b"[DONE]"
TOKEN_FIELDS = ("content", "reasoning", "reasoning_content", "refusal", "tool_calls",
                "function_call")  # fmt: skip
"""Delta members that hold generated tokens; ``audio`` does by some of its own members."""


class ChunkFacts(NamedTuple):
    """``token``: a generated token of any kind; ``answer``: visible content of the answer.

    ``blank`` marks a chunk with the right members but empty text, which may be a
    real token whose text is still held back by the detokeniser: only somebody who
    counts tokens can tell, or the ids of the tokens beside it.
    """

    token: bool = False
    answer: bool = False
    blank: bool = False


NOTHING = ChunkFacts()


def choice_facts(choice: dict[str, Any]) -> ChunkFacts:
    """What one choice of a chunk carries."""
    ids = bool(choice.get("token_ids"))  # vLLM's return_token_ids
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return _delta(delta, ids)
    text = choice.get("text")
    if isinstance(text, str):
        return ChunkFacts(token=bool(text) or ids, answer=bool(text), blank=not text)
    return NOTHING


def _delta(delta: dict[str, Any], ids: bool) -> ChunkFacts:
    """The role prelude carries no token; visible content is what is not only white space."""
    token = ids or any(delta.get(name) for name in TOKEN_FIELDS) or _audible(delta.get("audio"))
    content = delta.get("content")
    answer = isinstance(content, str) and bool(content.strip())
    blank = not token and "role" not in delta and content == ""
    return ChunkFacts(token=token, answer=answer, blank=blank)


def _audible(audio: object) -> bool:
    """Sound or what is said in it; its id and when it expires come apart from that."""
    return isinstance(audio, dict) and bool(audio.get("data") or audio.get("transcript"))


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
