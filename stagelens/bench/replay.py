"""Recorded requests as a load: their gaps, their lengths, and prompts that share as theirs did."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.models.records import Record
from stagelens.bench.alike_prompts import HALF_BLOCK, Alike
from stagelens.bench.plan import Plan, said
from stagelens.bench.talk import Conversation, Turn
from stagelens.bench.words import Scale, draw_words, prompt

_BY_MARKS = (
    "Prefixes: of {} requests keyed hashes in the record tell which prompts began alike, each 16 "
    "tokens and beyond the 256th each eighth of the length; how long they were alike is of the "
    "cached tokens, else of the hashes. The texts themselves are made up."
)
_BY_LENGTH = (
    "Prefixes: {} records hold no hashes of their prompts. Each of these shares as many words with "
    "an earlier prompt as it found cached tokens, with the last one that found as many: different "
    "prefixes of one length are taken for one. The texts themselves are made up."
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What can be replayed of some requests, and what could not."""

    records: tuple[Record, ...]
    left_out: int
    unread: int = 0
    """Requests beyond the most that are read at once."""

    @property
    def length_s(self) -> float:
        """From the first arrival to the last."""
        if not self.records:
            return 0.0
        return (self.records[-1].start_unix_ns - self.records[0].start_unix_ns) / 1e9

    @property
    def unmarked(self) -> int:
        """Records that do not tell which prompts begin alike."""
        return sum(not one.prompt_marks for one in self.records)


def choose(records: Sequence[Record], total: int | None = None) -> Recorded:
    """Those whose lengths are known, in the order of their arrival; ``total`` is how many there are."""
    usable = [r for r in records if r.input_tokens and r.output_tokens]
    usable.sort(key=lambda r: r.start_unix_ns)
    unread = max(0, (total or 0) - len(records))
    return Recorded(tuple(usable), len(records) - len(usable), unread)


def prefix_notes(recorded: Recorded) -> list[str]:
    """What the shared prefixes of the replay are taken from."""
    unmarked = recorded.unmarked
    marked = len(recorded.records) - unmarked
    notes = []
    if marked:
        notes.append(_BY_MARKS.format(marked))
    if unmarked:
        notes.append(_BY_LENGTH.format(unmarked))
    return notes


def make_replay(recorded: Recorded, scale: Scale, seed: int, speed: float) -> Plan:
    """The plan; ``speed`` 2 halves the gaps.

    A request whose record has marks of its prompt begins like the earlier one that it has
    most of them in common with. One without marks that found ``c`` tokens in the prefix
    cache begins as the last one that found as many, else as the latest one that is long
    enough. The common part is as long as it takes to find the same whole blocks again. What
    no earlier one holds (it was cached before the first record) is sent in a primer first.
    """
    rng = random.Random(f"{seed}/replay")  # noqa: S311
    first = recorded.records[0].start_unix_ns
    prefixes = _Prefixes(scale, rng)
    talks: list[Conversation] = []
    for one in recorded.records:
        assert one.input_tokens
        assert one.output_tokens
        count = scale.words(one.input_tokens)
        prefix = prefixes.of(one, count)
        words = [*prefix, *draw_words(rng, count - len(prefix))]
        prefixes.add(one, words)
        reached = one.input_tokens if one.input_tokens > scale.base else None
        turn = Turn((said(prompt(words)),), one.output_tokens, reached)
        talks.append(Conversation((turn,), stream=one.stream))
    arrivals = [(r.start_unix_ns - first) / 1e9 / speed for r in recorded.records]
    return Plan(iter(talks), iter(arrivals), tuple(prefixes.primers))


class _Prefixes:
    """The words that recorded prompts begin with, and the primers those need."""

    def __init__(self, scale: Scale, rng: random.Random) -> None:
        self._scale, self._rng = scale, rng
        self._alike = Alike(scale)
        self._by_length: dict[int, list[str]] = {}
        self._before: list[list[str]] = []
        self.primers: list[Conversation] = []

    def of(self, one: Record, count: int) -> list[str]:
        """What a prompt of ``count`` words begins with; the last word is its own."""
        most = max(0, count - 1)
        if one.prompt_marks:
            common, earlier = self._alike.before(one, most)
            return self._whole(list(earlier[:common]), common)
        if not one.cached_tokens:
            return []
        common = min(self._scale.words(one.cached_tokens + HALF_BLOCK), most)
        if common and common not in self._by_length:
            long = next((e for e in reversed(self._before) if len(e) >= common), [])
            self._by_length[common] = self._whole(long[:common], common)
        return self._by_length.get(common, [])

    def add(self, one: Record, words: list[str]) -> None:
        self._before.append(words)
        self._alike.add(one, words)

    def _whole(self, known: list[str], common: int) -> list[str]:
        """``known``, made ``common`` words long; what has to be made up was cached before."""
        if len(known) == common:
            return known
        words = [*known, *draw_words(self._rng, common - len(known))]
        # the primer goes on behind the prefix, so that its last block is whole and can be found
        behind = draw_words(self._rng, 16)
        self.primers.append(Conversation((Turn((said(prompt([*words, *behind])),), 1),)))
        return words
