"""JSON and text that may hold what UTF-8 cannot: halves of surrogate pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn


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


def strict(text: str) -> Any:  # noqa: ANN401
    """What the JSON ``text`` says.

    Raises:
        ValueError: it is none, or it holds NaN or Infinity, which other readers refuse, or a
            number that is read as one (``1e999``).
        RecursionError: it is too deep.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
