"""Which prompts begin alike, told without a word of them.

A prompt's beginning is hashed at fixed places: every 16 tokens to the 256th, from there
eight times an octave, to the 8192nd. Two prompts that begin alike have the same marks up to
the last place before they differ. The hashes are keyed with bytes that live as long as the
proxy's process and are written nowhere: nobody can try texts against a stored mark, and
prompts of two processes never look alike.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile

BYTES_PER_TOKEN = 4
"""Of an id of the engine's; of text it is about that."""
LIMIT = 8192 * BYTES_PER_TOKEN
TOKENS, TEXT = "t", "b"
"""First letter of the marks: whether their places count tokens, or bytes of text over four."""
_BEGINS = re.compile(rb'"(?:tools|system|instructions|messages|prompt|input)"\s*:')


def places() -> Iterator[int]:
    """Where marks are, in bytes."""
    return takewhile(lambda at: at <= LIMIT, endless_places())


def endless_places() -> Iterator[int]:
    """Where marks would be if no prompt were too long."""
    at = 0
    while True:
        # an eighth of the power of two that is reached, and a usual cache block at least
        at += max(16 * BYTES_PER_TOKEN, (1 << at.bit_length() >> 1) // 8)
        yield at


_PLACES = tuple(places())


def prompt_text(body: bytes) -> bytes:
    """The part of a JSON request that begins with its prompt, as far as it is hashed."""
    found = _BEGINS.search(body, 0, LIMIT)
    return body[found.end() : found.end() + LIMIT] if found else b""


class PromptMarks:
    """Makes the marks of one process's prompts; ``key`` has at most 64 bytes."""

    def __init__(self, key: bytes | None = None) -> None:
        self._start = blake2b(digest_size=4, key=os.urandom(16) if key is None else key)

    def of(self, prompt: bytes | Sequence[int]) -> str:
        """Eight hex digits a place, behind the letter of their kind; "" for a short prompt."""
        if isinstance(prompt, bytes):
            return self._of(TEXT, prompt)
        try:
            ids = array("I", prompt[: LIMIT // BYTES_PER_TOKEN])
        except (TypeError, OverflowError):  # no ids as vocabularies have them
            return ""
        return self._of(TOKENS, ids.tobytes())

    def _of(self, kind: str, data: bytes) -> str:
        so_far, made, at = self._start.copy(), [], 0
        for end in _PLACES:
            if end > len(data):
                break
            so_far.update(data[at:end])
            made.append(so_far.copy().digest())
            at = end
        return kind + b"".join(made).hex() if made else ""
