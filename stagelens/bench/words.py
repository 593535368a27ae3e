"""Prompts of a wanted number of tokens, without a tokenizer.

The words below are each one token, with the space before it, in the usual vocabularies.
Whether that holds for the server at hand is measured: one probe without words tells how many
tokens a prompt has beside them (the chat template), one with every word how many a word takes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_TEXT = (
    "time year people way day man thing woman life child world school state family group "
    "country problem hand part place case week company system program question work number "
    "night point home water room mother area money story fact month lot right study book eye "
    "job word business issue side kind head house service friend father power hour game line "
    "end member law car city name team minute idea body back parent face others level office "
    "door health person art war history party result change morning reason research girl guy "
    "moment air teacher force education foot boy age policy music market sense nation plan "
    "college interest death course someone experience behind river north south table light "
    "green black white early sound short field whole space heard best better true during "
    "hundred five remember step hold west ground fast sing listen six less ten simple "
    "several toward lay against pattern slow center love serve appear road map rain rule "
    "govern pull cold notice voice unit town fine fly fall lead cry dark machine note wait "
    "star box rest correct able stood front teach final gave quick ocean warm free strong "
    "special mind clear tail produce nothing stay wheel full blue object decide surface deep "
    "moon island test "
)
WORDS = tuple(_TEXT.split())
FIRST = "the"
"""Each prompt's first word: it has no space before it, so its tokens are in the base."""
FEW = 30
"""Words of the second probe where one of all words is too long for the server."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How words become the server's tokens: ``base`` beside them, ``per_word`` for each.

    ``whole``: it was measured with every word; ``refused``: what the server said to those else.
    ``unknown``: why it could not be measured.
    """

    base: float = 0.0
    per_word: float = 1.0
    measured: bool = False
    whole: bool = True
    unknown: str = "the server told no count"
    refused: str = ""

    @property
    def exact(self) -> bool:
        """Whether a prompt of any wanted length from ``base`` + 1 on can be made."""
        return self.measured and self.whole and self.per_word == 1.0

    def words(self, tokens: int) -> int:
        """Words beside ``FIRST`` in a prompt of ``tokens``; at least none."""
        return max(0, round((tokens - self.base) / self.per_word))

    @classmethod
    def of_probes(cls, short: int, words: int, long: int) -> Scale:
        """From the server's counts for :func:`probe_text` of no words and of ``words``."""
        per_word = (long - short) / words
        if per_word <= 0:
            told = f"the server counted {long} tokens for {words + 1} words and {short} for one word"
            return cls(unknown=told)
        return cls(short, per_word, measured=True, whole=words >= len(WORDS))


def probe_text(words: int) -> str:
    """The first ``words`` of them, each once."""
    return " ".join((FIRST, *WORDS[:words]))


def draw_words(rng: random.Random, count: int) -> list[str]:
    """``count`` words; two draws do not begin alike for longer than a few words."""
    return rng.choices(WORDS, k=count)


def prompt(words: Sequence[str]) -> str:
    return " ".join((FIRST, *words))
