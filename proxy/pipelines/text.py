"""JSON and text that may hold what UTF-8 cannot: halves of surrogate pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, NoReturn

from pydantic_core import to_jsonable_python

MOST_ITEMS = 10_000
MOST_WHOLE = 1e30
"""Beyond it a number with a point or an exponent stays as it is."""


def clean(text: str) -> str:
    """``text`` as UTF-8 can tell it; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """``text`` without what a terminal would obey."""
    return "".join(one if one.isprintable() else "?" for one in text)


def hidden(text: str, secrets: Iterable[str]) -> str:
    """``text`` without ``secrets``, nor any word of theirs that is long enough to be one."""
    words = {word for secret in secrets for word in (secret, *secret.split()) if len(word) >= 6}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "***")
    return text


def encoded(body: object) -> bytes:
    """``body`` as JSON; where UTF-8 cannot tell it, in escapes, as it came."""
    try:
        return json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(body).encode("ascii")


def plain(value: object) -> Any:  # noqa: ANN401
    """``value`` as JSON can tell it: models, dates and sets too, an iterator by its first
    ``MOST_ITEMS``, bytes as text, NaN and infinite numbers as null.

    Raises:
        ValueError: it holds itself.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Iterator):
        value = list(islice(value, MOST_ITEMS))
    return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="null")


def as_text(value: object) -> str:
    """A function's result for the model: text as it is, all else as JSON."""
    told = plain(value)
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)


def strict(text: str) -> Any:  # noqa: ANN401
    """What the JSON ``text`` says; a whole number as one, however it is written (``1.0``, ``1e0``).

    Raises:
        ValueError: it is none, or it holds NaN or Infinity, which other readers refuse, or a
            number that is read as one (``1e999``).
        RecursionError: it is too deep.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def sendable(text: str) -> Any:  # noqa: ANN401
    """What :func:`strict` reads of ``text``; a lone surrogate in a name or a text becomes a question
    mark: no message can hold it.
    """
    given = strict(text)
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        return strict(problem.object.encode("utf-8", "replace").decode())
    return given


def _finite(text: str) -> float | int:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    # JSON has one kind of number, and a server that wants an integer may refuse 1.0
    return int(Decimal(text)) if number.is_integer() and abs(number) < MOST_WHOLE else number


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
