"""Arguments and results as text, and how long they are without holding the caller up for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

MOST_PARTS = 10_000
NAME_EXTRA = 6
"""Characters of a JSON object for each name, beside it and its value: the quotes, the colon, the
comma and two spaces; the last has the braces in the place of its comma and space."""
EXACT = 100_000

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


def size_of(value: object) -> int | None:
    """Characters of ``value`` as JSON, or of its own text; None where finding it would take long.

    Beyond ``EXACT`` characters escapes are not counted; with more than ``MOST_PARTS`` parts, and
    for arrays and tables, there is none. Of bytes it is their number.
    """
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value)  # type: ignore[arg-type]
    if kind is int:
        return len(str(value))
    if kind is dict and (size := _size_of_plain(value)) is not None:  # type: ignore[arg-type]
        return size
    try:
        about = _about(value, [MOST_PARTS])
    except Exception:  # noqa: BLE001  one that holds itself, or a stranger's that raises
        about = None
    return len(text_of(value)) if about is not None and about <= EXACT else about


def _about(value: object, left: list[int]) -> int | None:
    """Roughly its size without writing it out; None where it has too many parts, or hides them."""
    left[0] -= 1
    if left[0] < 0 or hasattr(type(value), "__array__") or hasattr(type(value), "iterrows"):
        return None
    if isinstance(value, str | bytes | bytearray):
        return len(value) + 2
    if isinstance(value, dict):
        parts: Iterable[object] = chain(value.keys(), value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    else:
        return 1
    size = 2
    for one in parts:
        found = _about(one, left)
        if found is None:
            return None
        size += found + 2
    return size


def _size_of_plain(values: dict[Any, Any]) -> int | None:
    """Characters of the JSON of names with numbers and short texts; None where it is not that.

    The encoder would take a fifth of what a tool's whole span takes.
    """
    size = 0
    for name, value in values.items():
        if type(name) is not str or not name.isidentifier():
            return None
        found = size_of_plain_value(value)
        if found is None:
            return None
        size += len(name) + NAME_EXTRA + found
    return size or len("{}")


def size_of_plain_value(value: object) -> int | None:
    """Characters of a whole number or a plain text as JSON; None where it is not that."""
    if type(value) is int:
        return len(str(value))
    if type(value) is str and value.isprintable() and '"' not in value and "\\" not in value:
        return len(value) + 2
    return None
