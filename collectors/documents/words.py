"""Words of a text: the same cut for what is stored and for what is asked."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MOST_ASKED: Final = 32
"""Different words of a question that are looked for."""
LONGEST: Final = 64
_WORD: Final = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Words in order, folded: without case, with one form for each letter; none is longer
    than ``LONGEST``.

    ClickHouse's ``hasToken`` cuts at every ASCII character that is no letter or digit;
    a word here holds none of those.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word[:LONGEST] for word in _WORD.findall(folded)]


def asked_words(text: str) -> list[str]:
    """Each word of a question once, the first ``MOST_ASKED`` of them."""
    return list(dict.fromkeys(words_of(text)))[:MOST_ASKED]
