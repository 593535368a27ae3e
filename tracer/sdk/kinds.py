"""What kind a user's value is, without asking the value: it may answer anything, or raise."""

from __future__ import annotations

from types import UnionType

PLAIN_IDS = frozenset(
    map(id, (str, bytes, bytearray, dict, list, tuple, set, frozenset, int, float, bool, type(None)))
)
"""By identity: a class may have a metaclass that makes it equal to others, or impossible to hash."""


def is_plain(value: object) -> bool:
    """Whether it is of one of Python's own data types, and of no subclass."""
    return id(type(value)) in PLAIN_IDS


def is_a(value: object, kinds: type | UnionType) -> bool:
    """``isinstance`` by the value's own type; ``__class__``, which lazy objects answer with work, is
    not asked for. False where that cannot be told.
    """
    return is_kind(type(value), kinds)


def is_kind(kind: type, kinds: type | UnionType) -> bool:
    """``issubclass``; False for a class that an abstract one cannot look up."""
    try:
        return issubclass(kind, kinds)
    except Exception:  # noqa: BLE001  a metaclass may raise anything
        return False
