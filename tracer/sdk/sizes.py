"""Arguments and results as text, and how long they are without holding the caller up for it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any

from tracer.sdk.kinds import is_a

MOST_PARTS = 10_000
NAME_EXTRA = 6
"""Characters of a JSON object for each name, beside it and its value: the quotes, the colon, the
comma and two spaces; the last has the braces in the place of its comma and space."""
EXACT = 100_000
LONGEST_NAME = 256
DIGITS_A_BIT = 0.30103
LARGE = 10**100
"""Whole numbers from here on are measured by their bits: Python refuses to write the largest out."""
OBJECT_PARTS = 20
"""What an object with a text of its own counts for: it may hold half the program."""

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_ITEMS = list | tuple | set | frozenset | deque | type({}.keys()) | type({}.values()) | type({}.items())


def text_of(value: object) -> str:
    """``value`` as JSON, or as whatever text can be had of it; never raises."""
    try:
        return _written(value)
    except Exception:  # noqa: BLE001  a stranger's object may raise anything
        return f"<{type(value).__name__}>"


def _written(value: object) -> str:
    if is_a(value, str):
        return value  # type: ignore[return-value]
    if is_a(value, bytes | bytearray):
        return value.decode("utf-8", "replace")  # type: ignore[attr-defined,no-any-return]
    return _encode(value)


def size_of(value: object) -> int | None:
    """Characters of ``value`` as JSON, or of its own text; None where finding it would take long.

    Beyond ``EXACT`` characters, of whole numbers from ``LARGE`` on and of names that JSON
    does not have it is about that; with more than ``MOST_PARTS`` parts, and for arrays and tables, there is
    none. Of bytes it is their number. Never raises.
    """
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value)  # type: ignore[arg-type]
    if kind is int:
        return _size_of_int(value)  # type: ignore[arg-type]
    if kind is dict and (size := _size_of_plain(value)) is not None:  # type: ignore[arg-type]
        return size
    try:
        about = _about(value, [MOST_PARTS])
    except Exception:  # noqa: BLE001  one that holds itself, or a stranger's that raises
        return None
    if about is None or about > EXACT:
        return about
    try:
        return len(_written(value))
    except TypeError:  # names that JSON does not have
        return about if is_a(value, _ITEMS | dict) else None
    except Exception:  # noqa: BLE001  one that holds itself, or a stranger's that raises
        return None


def fits(value: object) -> bool:
    """Whether writing it out takes no time that its caller would notice."""
    try:
        about = _about(value, [MOST_PARTS])
    except Exception:  # noqa: BLE001  as above
        return False
    return about is not None and about <= EXACT


def _about(value: object, left: list[int]) -> int | None:
    """Roughly its size without writing it out; None where it has too many parts, or hides them."""
    left[0] -= 1
    kind = type(value)
    if left[0] < 0:
        return None
    if kind is str or is_a(value, str | bytes | bytearray):
        return len(value) + 2  # type: ignore[arg-type]
    if kind is int or is_a(value, int):
        return int(value.bit_length() * DIGITS_A_BIT) + 1  # type: ignore[attr-defined]
    if hasattr(kind, "__array__") or hasattr(kind, "iterrows"):
        return None
    parts = _parts_of(value, left)
    if parts is None:
        return 1
    size = 2
    for one in parts:
        found = _about(one, left)
        if found is None:
            return None
        size += found + 2
    return size


def _parts_of(value: object, left: list[int]) -> Iterable[object] | None:
    """What it consists of; None if of nothing. Where that is too much there is none ``left``."""
    if is_a(value, _ITEMS | dict):
        if len(value) > left[0]:  # type: ignore[arg-type]
            left[0] = 0
        if is_a(value, dict):
            return chain(value.keys(), value.values())  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]
    fields = held_by(value)
    left[0] -= OBJECT_PARTS if fields else 0
    return fields.values() if fields else None


def held_by(value: object) -> dict[str, Any]:
    """The fields of an object that has a text of its own; they are likely to be in that text."""
    kind = type(value)
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        return {}
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        told = base.__dict__.get("__slots__", ())
        for name in (told,) if isinstance(told, str) else told:
            try:
                found[name] = object.__getattribute__(value, name)
            except AttributeError:  # not set, or a private name
                continue
    try:
        found.update(object.__getattribute__(value, "__dict__"))
    except AttributeError:  # all its fields are slots
        return found
    return found


def _size_of_plain(values: dict[Any, Any]) -> int | None:
    """Characters of the JSON of names with numbers and short texts; None where it is not that.

    The encoder would take a fifth of what a tool's whole span takes.
    """
    size = 0
    if len(values) > MOST_PARTS:
        return None
    for name, value in values.items():
        if type(name) is not str or len(name) > LONGEST_NAME or not name.isidentifier():
            return None
        found = size_of_plain_value(value)
        if found is None or size > EXACT:
            return None
        size += len(name) + NAME_EXTRA + found
    return size or len("{}")


def size_of_plain_value(value: object) -> int | None:
    """Characters of a whole number or a plain text as JSON; None where it is not that."""
    if type(value) is int:
        return _size_of_int(value)
    if type(value) is str:
        if len(value) > EXACT:
            return len(value) + 2
        if value.isprintable() and '"' not in value and "\\" not in value:
            return len(value) + 2
    return None


def _size_of_int(value: int) -> int:
    if -LARGE < value < LARGE:
        return len(str(value))
    return int(value.bit_length() * DIGITS_A_BIT) + (1 if value > 0 else 2)
