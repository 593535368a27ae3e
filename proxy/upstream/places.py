"""Where the top-level members of a JSON object stand, found without parsing it, in a part of it too."""

from __future__ import annotations

import json
import re

from proxy.stream.sse import BOM

_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?P<named>[ \t\r\n]*:)?|["{}\[\]]', re.DOTALL)
"""Strings, with the colon that makes one a key; brackets; and a string whose end is not there."""
_SPACE = re.compile(rb"[ \t\r\n]*")
_BEHIND = frozenset(" \t\r\n,}]")
LONGEST = 4096
"""Bytes of a value that are looked at."""


def places(data: bytes) -> dict[str, int]:
    """Each top-level key with the index where its value begins; the last one of a name counts.

    ``data`` may be the beginning of a document: what lies behind it is not known. Of what
    is no JSON object nothing is found, or what would be found if the rest of it were good.
    """
    found: dict[str, int] = {}
    if b"\0" in data[:4]:  # UTF-16 or UTF-32
        return found
    depth = 0
    for mark in _MARKS.finditer(data):
        first = data[mark.start()]
        if first == 0x22:  # a quote
            if mark.end() == mark.start() + 1:
                break
            if depth == 1 and mark["named"] is not None:
                begins = _after_space(data, mark.end())
                if begins < len(data):
                    found[_text(data[mark.start() : mark.start("named")])] = begins
        elif first in b"{[":
            if depth == 0 and (first == 0x5B or data[: mark.start()].removeprefix(BOM).strip()):
                break
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                break
    return found


def value_at(data: bytes, at: int) -> tuple[object, int] | None:
    """The value that begins at ``at`` and where it ends; None if it is not whole within ``LONGEST``."""
    text = data[at : at + LONGEST].decode("utf-8", "surrogateescape")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, str | list | dict) and text[end : end + 1] not in _BEHIND:
        return None  # a number may go on, and one cut at its exponent reads as a shorter one
    return value, at + len(text[:end].encode("utf-8", "surrogateescape"))


def _after_space(data: bytes, at: int) -> int:
    space = _SPACE.match(data, at)
    return space.end() if space is not None else at


def _text(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.decode("utf-8", "replace")
