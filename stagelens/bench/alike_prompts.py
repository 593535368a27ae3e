"""Which earlier prompt a recorded one begins like, by the marks in the records.

The marks are the proxy's (``stagelens.prompt.marks``): keyed hashes of a prompt's beginning at
fixed places. Equal ones mean equal beginnings up to that place; how long the equal part is
beyond it, the cached tokens tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from dashboards.models.records import Record
from proxy.request.prompt_marks import BYTES_PER_TOKEN, TOKENS, endless_places
from stagelens.bench.words import Scale

HALF_BLOCK = 8
"""Half of the 16 tokens of a usual cache block: caches find whole blocks of equal tokens, so
half a block more in common changes nothing, and takes up what the template puts behind."""
DIGITS = 8


def places(count: int) -> list[int]:
    """Tokens before each of the first ``count`` marks, as the proxy sets them."""
    return [at // BYTES_PER_TOKEN for at in islice(endless_places(), count)]


def keys_of(marks: str) -> list[str]:
    """The marks one by one, each of which stands for the whole beginning up to its place."""
    kind, hashes = marks[:1], marks[1:]
    count = len(hashes) // DIGITS
    return [f"{kind}{n}:{hashes[n * DIGITS : (n + 1) * DIGITS]}" for n in range(count)]


@dataclass
class Alike:
    """The prompts so far by their marks: of each mark the latest words, and the longest."""

    scale: Scale
    _known: dict[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)

    def before(self, one: Record, most: int) -> tuple[int, Sequence[str]]:
        """How many words, at most ``most``, begin ``one``, and an earlier prompt that it begins like.

        The words may be more than the earlier prompt has where the cache held them from
        before the recording.
        """
        keys = keys_of(one.prompt_marks)
        shared = next((n for n in range(len(keys), 0, -1) if keys[n - 1] in self._known), 0)
        latest, longest = self._known[keys[shared - 1]] if shared else ((), ())
        common = min(self._words(one, shared, len(keys), most), most)
        if not one.cached_tokens:  # then no more is known than that it was sent before
            common = min(common, len(longest))
        return common, latest if len(latest) >= common else longest

    def _words(self, one: Record, shared: int, marks: int, most: int) -> int:
        """Of ``shared`` of the prompt's ``marks``; where they are of text, as large a share of it."""
        at = [0, *places(marks + 1)]
        cached = one.cached_tokens or 0
        if one.prompt_marks.startswith(TOKENS):
            cached = max(cached, at[shared])
        elif not cached:  # the text ends between its last mark and the next place
            return round(most * at[shared] / ((at[marks] + at[marks + 1]) / 2))
        return self.scale.words(cached + HALF_BLOCK) if cached else 0

    def add(self, one: Record, words: Sequence[str]) -> None:
        """``words`` is what is sent for ``one``."""
        for key in keys_of(one.prompt_marks):
            _, longest = self._known.get(key, ((), ()))
            self._known[key] = (words, words if len(words) >= len(longest) else longest)
