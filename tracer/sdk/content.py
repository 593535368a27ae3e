"""What may be recorded of arguments and results: sizes always, text only where asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span

from tracer import semconv
from tracer.sdk.root import Carries
from tracer.sdk.runtime import Runtime
from tracer.sdk.secrets import HIDDEN, scrub, scrub_text

MOST_DOCUMENTS = 100
MOST_SIZED = 1_000_000
SLACK = 4096
"""Characters of a stream kept beyond the limit, so that a redaction sees whole words there."""


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


def text_of(value: object) -> str:
    """``value`` as JSON, or as whatever text can be had of it; never raises."""
    try:
        if isinstance(value, str):
            return value
        if isinstance(value, bytes | bytearray):
            return value.decode("utf-8", "replace")
        return _encode(value)
    except Exception:  # noqa: BLE001  a stranger's object may raise anything
        return f"<{type(value).__name__}>"


def size_of(value: object) -> int:
    """Characters of ``value`` as text."""
    if type(value) is str:
        return len(value)
    if type(value) is int:
        return len(str(value))
    if type(value) is dict and (size := _size_of_plain(value)) is not None:
        return size
    return len(text_of(value))


def _size_of_plain(values: dict[Any, Any]) -> int | None:
    """Characters of the JSON of names with numbers and short texts; None where it is not that.

    The encoder would take a fifth of what a tool's whole span takes.
    """
    size = 2
    for name, value in values.items():
        if type(name) is not str or not name.isidentifier():
            return None
        size += len(name) + 4
        if type(value) is int:
            size += len(str(value))
        elif type(value) is str and value.isprintable() and '"' not in value and "\\" not in value:
            size += len(value) + 2
        else:
            return None
    return size + 2 * max(0, len(values) - 1)


def note_content(runtime: Runtime, span: Span, name: str, value: object) -> None:
    """Record ``value`` under ``name`` if content is captured.

    Without keys and headers, redacted by the user's hook, and cut at a character. What was
    cut is named in ``stagelens.cut`` with its whole length.
    """
    if not runtime.capture_content:
        return
    text = scrub_text(text_of(value if isinstance(value, str) else scrub(value)))
    note_text(runtime, span, name, text, len(text))


def note_text(
    runtime: Runtime, span: Span, name: str, text: str, length: int, as_message: bool = False
) -> None:
    """Record scrubbed ``text``, which is the beginning of ``length`` characters."""
    whole = length == len(text)
    if runtime.redact is not None:
        try:
            text = runtime.redact(name, text)
        except Exception:  # noqa: BLE001  what could not be redacted is not recorded
            span.set_attribute(name, HIDDEN)
            runtime.fault()
            return
    if not whole:
        text = text[: max(0, len(text) - SLACK)]
    if len(text) > runtime.content_limit or not whole:
        told = len(text) if whole else length
        text = text[: runtime.content_limit]
        _note_cut(span, f"{name}={told}")
    text = text.encode("utf-8", "replace").decode()
    span.set_attribute(name, _message(text) if as_message else text)


def _note_cut(span: Span, told: str) -> None:
    before = getattr(span, "attributes", None) or {}
    known = before.get(semconv.CUT, ())
    span.set_attribute(semconv.CUT, [*known, told])


def _message(text: str) -> str:
    parts = [{"type": "text", "content": text}]
    return json.dumps([{"role": "assistant", "parts": parts}], ensure_ascii=False)


class StreamText:
    """The text of a stream's items as far as it may be recorded; what exceeds it is counted."""

    def __init__(self, most: int) -> None:
        self._most = most + SLACK
        self._pieces: list[str] = []
        self._kept = self._length = 0

    def add(self, item: object) -> None:
        piece = piece_of(item)
        self._length += len(piece)
        if piece and self._kept < self._most:
            piece = piece[: self._most - self._kept]
            self._pieces.append(piece)
            self._kept += len(piece)

    def note(self, runtime: Runtime, span: Span, name: str) -> None:
        if not self._length:
            return
        text = "".join(self._pieces)
        clean = scrub_text(text)
        length = len(clean) if self._length == self._kept else self._length
        message = name == semconv.GEN_AI_OUTPUT_MESSAGES
        note_text(runtime, span, name, clean, length, message)


def piece_of(item: object) -> str:
    """The text in one item of a stream: itself, or a chunk's as the usual clients have it."""
    if isinstance(item, str):
        return item
    choices = _get(item, "choices")
    if isinstance(choices, list | tuple):
        first = choices[0] if choices else None
        delta = _get(first, "delta")
        return _str(_get(first, "text") if delta is None else _get(delta, "content"))
    delta = _get(item, "delta")
    if delta is not None:
        return _str(delta if isinstance(delta, str) else _get(delta, "text"))
    plain = isinstance(item, bytes | bytearray | dict | list | int | float)
    return text_of(scrub(item)) if plain else ""


def carries_of(item: object) -> Carries:
    """Whether an item holds a generated token, and a visible one; unknown kinds of items do."""
    if isinstance(item, str):
        return _visible(item)
    choices = _get(item, "choices")
    if isinstance(choices, list | tuple):
        return max((_of_choice(one) for one in choices), default=Carries.NOTHING)
    if choices is None and isinstance(item, Mapping) and "choices" in item:
        return Carries.NOTHING
    return Carries.ANSWER


def _of_choice(choice: object) -> Carries:
    delta = _get(choice, "delta")
    if delta is None:
        return _visible(_str(_get(choice, "text")))
    seen = _visible(_str(_get(delta, "content")))
    hidden = ("reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio")
    if seen is Carries.NOTHING and any(_get(delta, name) for name in hidden):
        return Carries.TOKEN
    return seen


def _visible(text: str) -> Carries:
    if not text:
        return Carries.NOTHING
    return Carries.TOKEN if text.isspace() else Carries.ANSWER


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def _get(value: object, name: str) -> Any:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # noqa: BLE001  a stranger's property
        return None


def has_usage(item: object) -> bool:
    """Whether a chunk tells token counts; of several the last is right, for they are totals."""
    return not isinstance(item, str | bytes) and _get(item, "usage") is not None


def note_usage(span: Span, result: object) -> None:
    """Tokens as the server counted them, where the answer or its last chunk tells."""
    usage = _get(result, "usage")
    if usage is None or not span.is_recording():
        return
    for name, keys in (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, ("input_tokens", "prompt_tokens")),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, ("output_tokens", "completion_tokens")),
    ):
        told = [n for key in keys if type(n := _get(usage, key)) is int]
        if told:
            span.set_attribute(name, told[0])


def note_documents(runtime: Runtime, span: Span, found: object) -> None:
    """The number of documents, and the id and score of each where it has them; no text."""
    if not isinstance(found, list | tuple):
        return
    span.set_attribute(semconv.DOCUMENT_COUNT, len(found))
    told = [_id_and_score(one) for one in found[:MOST_DOCUMENTS]]
    known = [one for one in told if one]
    if known:
        span.set_attribute(semconv.GEN_AI_RETRIEVAL_DOCUMENTS, json.dumps(known, default=str))
    note_content(runtime, span, semconv.DOCUMENT_TEXTS, found)


def _id_and_score(document: object) -> dict[str, Any]:
    told: dict[str, Any] = {}
    pair = isinstance(document, tuple) and len(document) == 2
    if pair and isinstance(document, tuple) and isinstance(document[1], int | float):
        told["score"], document = document[1], document[0]
    for name in ("id", "score"):
        value = _get(document, name)
        if isinstance(value, str | int | float):
            told[name] = value[:256] if isinstance(value, str) else value
    return told
