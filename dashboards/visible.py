"""Texts of strangers (names of spans, models, tags), shown so that each character is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Fillers and a joiner that count as printable and show nothing."""


MOST_NAME_CHARS: Final = 120
"""Names of strangers have no greatest length: a longer one is cut in sentences and tables."""
MOST_TITLE_CHARS: Final = 1000


def short(text: str, most: int = MOST_NAME_CHARS) -> str:
    """``text``, cut with an ellipsis behind ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}…"


_LEFT_OUT: Final = ".."


def told_apart(ids: Iterable[str], most: int = 16) -> Callable[[str], str]:
    """How ``ids`` that stand together are cut to ``most`` characters and still differ.

    In ASCII: to their beginnings, where these differ; else to beginning and end; else not at all.
    """
    every = set(ids)
    cuts: tuple[Callable[[str], str], ...]
    half = (most - len(_LEFT_OUT)) // 2
    cuts = (
        lambda one: one[:most],
        lambda one: one if len(one) <= most else f"{one[:half]}{_LEFT_OUT}{one[-half:]}",
    )
    fit = (cut for cut in cuts if len({cut(one) for one in every}) == len(every))
    return next(fit, lambda one: one)


def quoted(value: str) -> str:
    """A value of a tag or a dimension, in quotation marks where nothing of it would be seen."""
    return value if value.strip() else f'"{value}"'


def visible(text: str) -> str:
    """``text`` on one line with nothing in it that is obeyed, turns what follows, or shows nothing.

    Control characters, line ends, direction marks, characters without width, spaces but the
    common one and lone surrogates are written as ``\\x1b``, ``\\n``, ``\\u202e``. What is
    written so is neither HTML nor rich markup: escape it after this, or put it into a ``Text``.
    The page has the same in ``dom.js``.
    """
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(
        one if one.isprintable() and one not in _BLANK else one.encode("unicode_escape").decode()
        for one in text
    )
