"""What may be recorded of arguments and results: sizes always, text only where asked for."""

from __future__ import annotations

import json
import math
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any

from opentelemetry.trace import Span

from tracer import semconv
from tracer.sdk.items import get, piece_of
from tracer.sdk.kinds import is_a
from tracer.sdk.runtime import Runtime
from tracer.sdk.secrets import HIDDEN, Room, scrub, scrub_text
from tracer.sdk.sizes import size_of, text_of

MOST_DOCUMENTS = 100
LONGEST_ID = 256
_redacting = ContextVar("stagelens-redacting", default=False)
"""What a redaction hook calls is traced, but its content would be given to the hook, and so on."""
SLACK = 4096
"""Characters of a stream kept beyond the limit, so that a redaction sees whole words there."""


def note_content(runtime: Runtime, span: Span, name: str, value: object) -> None:
    """Record ``value`` under ``name`` if content is captured.

    Without keys and headers, redacted by the user's hook, and cut at a character. What was
    cut is named in ``stagelens.cut`` with its whole length.
    """
    if not runtime.capture_content or _redacting.get():
        return
    try:
        text, length = _beginning(value, runtime.content_limit + SLACK)
        note_text(runtime, span, name, text, length)
    except Exception:  # noqa: BLE001  a stranger's object may raise anything
        runtime.fault()


def _beginning(value: object, most: int) -> tuple[str, int]:
    """At most ``most`` scrubbed characters of ``value``, and how many it has in all.

    What is not recorded is not written out: a result of 100 MB would hold its caller up.
    """
    room = Room(most)
    found = scrub(value, room)
    text = text_of(found)
    over = room.over or len(text) > most
    clean = scrub_text(text[:most])
    if not over:
        return clean, len(clean)
    length = len(value) if is_a(value, str | bytes | bytearray) else size_of(value)  # type: ignore[arg-type]
    return clean, max(len(text) + 1, length or 0)


def note_text(
    runtime: Runtime, span: Span, name: str, text: str, length: int, as_message: bool = False
) -> None:
    """Record scrubbed ``text``, which is the beginning of ``length`` characters."""
    whole = length == len(text)
    if runtime.redact is not None:
        inside = _redacting.set(True)
        try:
            text = "".join((runtime.redact(name, text),))  # raises where it gave no text
        except Exception:  # noqa: BLE001  what could not be redacted is not recorded
            span.set_attribute(name, HIDDEN)
            runtime.fault()
            return
        finally:
            _redacting.reset(inside)
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
        known = piece_of(item)
        piece = _as_text(item) if known is None else known
        self._length += len(piece)
        if piece and self._kept < self._most:
            piece = piece[: self._most - self._kept]
            self._pieces.append(piece)
            self._kept += len(piece)

    def note(self, runtime: Runtime, span: Span, name: str) -> None:
        if not self._length or _redacting.get():
            return
        text = "".join(self._pieces)
        clean = scrub_text(text)
        length = len(clean) if self._length == self._kept else self._length
        message = name == semconv.GEN_AI_OUTPUT_MESSAGES
        note_text(runtime, span, name, clean, length, message)


def _as_text(item: object) -> str:
    plain = is_a(item, bytes | bytearray | dict | list | int | float)
    return text_of(scrub(item)) if plain else ""


def note_documents(runtime: Runtime, span: Span, found: object) -> None:
    """The number of documents, and the id and score of each where it has them; no text."""
    if not is_a(found, list | tuple):
        return
    assert isinstance(found, list | tuple)
    span.set_attribute(semconv.DOCUMENT_COUNT, len(found))
    told = _without_keys([_id_and_score(one) for one in found[:MOST_DOCUMENTS]])
    known = [one for one in told if one]
    if known:
        span.set_attribute(semconv.GEN_AI_RETRIEVAL_DOCUMENTS, json.dumps(known))
    note_content(runtime, span, semconv.DOCUMENT_TEXTS, found)


def _id_and_score(document: object) -> dict[str, Any]:
    told: dict[str, Any] = {}
    score: object
    if is_a(document, tuple) and len(document) == 2 and _is_number(document[1]):  # type: ignore[arg-type, index]
        document, score = document  # type: ignore[misc]
        told = {"id": _id(document), "score": _score(score)} if _is_number(document) else {
            "score": _score(score)}  # fmt: skip
    for name, read in (("id", _id), ("score", _score)):
        for known in (name, f"_{name}"):  # Elasticsearch's have a line before
            if (value := read(get(document, known))) is not None:
                told[name] = value
                break
    return {name: value for name, value in told.items() if value is not None}


def _without_keys(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ids are often URLs, which may hold keys. All are looked through at once."""
    ids = [one["id"] for one in documents if type(one.get("id")) is str]
    if not ids:
        return documents
    clean = scrub_text("\n".join(ids)).split("\n")
    if len(clean) != len(ids):
        clean = [scrub_text(one) for one in ids]
    left = iter(clean)
    return [
        {**one, "id": next(left)[:LONGEST_ID]} if type(one.get("id")) is str else one
        for one in documents
    ]


def _is_number(value: object) -> bool:
    return type(value) is not bool and is_a(value, Real)


def _id(value: object) -> str | int | None:
    """Ids are texts, whole numbers (numpy's too) or UUIDs; never raises."""
    try:
        if is_a(value, str):
            return str(value)[: 4 * LONGEST_ID]
        if type(value) is not bool and is_a(value, Integral):
            found = int(value)  # type: ignore[call-overload]
            return found if found.bit_length() <= LONGEST_ID else None
        return str(value) if type(value).__name__ == "UUID" else None
    except Exception:  # noqa: BLE001  a stranger's object may raise anything
        return None


def _score(value: object) -> float | None:
    """A finite number; the databases' and models' own kinds of numbers as well. Never raises."""
    try:
        found = float(value) if _is_number(value) else math.nan  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001  a whole number that no double holds, or a stranger's
        return None
    return found if math.isfinite(found) else None
