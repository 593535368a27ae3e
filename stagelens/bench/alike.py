"""The chunk that is like an earlier one of its stream but for its word, known without parsing it."""

from __future__ import annotations

import re
from typing import Any

_NOT_PLAIN = re.compile(rb'["\\\x00-\x1f\x80-\xff]')
"""What JSON writes otherwise than it is, or ends a string with; and what is not sure to be UTF-8."""
_TRIES = 8
_NAMES = ("content", "text", "reasoning_content", "reasoning")
"""Where a word is looked for, in this order."""


class Alike:
    """Learnt from one event of a stream: all that stands before and after its word.

    Both halves are the bytes of an event that was parsed, divided within one string: the only
    value of that name in it, which is the choice's word. Other plain letters between the same
    halves are the same event with another word, by JSON's own grammar.
    """

    def __init__(self) -> None:
        self.index = 0
        self._before = self._after = b""
        self._least = 0
        self._tries = _TRIES

    def word(self, piece: bytes) -> str:
        """The word of a piece that is the learnt event with another one; "" where it is not."""
        size = len(piece)
        if (
            not self._least
            or size < self._least
            or not piece.startswith(self._before)
            or not piece.endswith(self._after)
        ):
            return ""
        begin, end = len(self._before), size - len(self._after)
        return "" if _NOT_PLAIN.search(piece, begin, end) else piece[begin:end].decode("ascii")

    def learn(self, piece: bytes, event: dict[str, Any]) -> None:
        """Of ``piece``, which is ``event`` alone, where it has one choice with one plain word."""
        if self._tries <= 0:
            return
        self._tries -= 1
        choices = event.get("choices") or []
        if len(choices) != 1 or event.get("usage") or event.get("error"):
            return
        choice = choices[0]
        delta = choice.get("delta")
        holder = delta or choice
        name = next((one for one in _NAMES if holder.get(one)), "")
        word, key = holder.get(name), b'"%s":' % name.encode()
        if choice.get("finish_reason") or not (isinstance(word, str) and word.isascii()):
            return
        begin = piece.find(key) + len(key)
        begin += piece[begin : begin + 1] == b" "
        string = b'"%s"' % word.encode()
        if word and piece.count(key) == 1 and piece.startswith(string, begin):
            begin, end = begin + 1, begin + len(string) - 1
            if not _NOT_PLAIN.search(piece, begin, end):
                self._before, self._after = piece[:begin], piece[end:]
                self._least = len(self._before) + len(self._after) + 1
                self.index = choice.get("index") or 0
