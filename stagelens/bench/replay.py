"""Recorded requests as a load: their gaps, their lengths, and prompts that share as theirs did."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.models.records import Record
from stagelens.bench.plan import Plan, said
from stagelens.bench.talk import Conversation, Turn
from stagelens.bench.words import Scale, draw_words, prompt

HALF_BLOCK = 8
"""Half of the 16 tokens of a usual cache block: caches find whole blocks of equal tokens, so
half a block more in common changes nothing, and takes up what the template puts behind."""


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


def choose(records: Sequence[Record], total: int | None = None) -> Recorded:
    """Those whose lengths are known, in the order of their arrival; ``total`` is how many there are."""
    usable = [r for r in records if r.input_tokens and r.output_tokens]
    usable.sort(key=lambda r: r.start_unix_ns)
    unread = max(0, (total or 0) - len(records))
    return Recorded(tuple(usable), len(records) - len(usable), unread)


def make_replay(recorded: Recorded, scale: Scale, seed: int, speed: float) -> Plan:
    """The plan; ``speed`` 2 halves the gaps.

    A request that found ``c`` tokens in the prefix cache begins with the same words as an
    earlier one, for as long as it takes to find the same whole blocks again: as the last
    one that found as many, else the latest one that is long enough. Where none is (its
    prefix was cached before the first record), a primer is sent first.
    """
    rng = random.Random(f"{seed}/replay")  # noqa: S311
    first = recorded.records[0].start_unix_ns
    families: dict[int, list[str]] = {}
    before: list[list[str]] = []
    primers: list[Conversation] = []
    talks: list[Conversation] = []
    for one in recorded.records:
        assert one.input_tokens
        assert one.output_tokens
        count = scale.words(one.input_tokens)
        common = _common(one, scale, count)
        if common and common not in families:
            families[common] = _prefix(before, common, rng, primers)
        words = [*families.get(common, ()), *draw_words(rng, count - common)]
        before.append(words)
        reached = one.input_tokens if one.input_tokens > scale.base else None
        turn = Turn((said(prompt(words)),), one.output_tokens, reached)
        talks.append(Conversation((turn,), stream=one.stream))
    arrivals = [(r.start_unix_ns - first) / 1e9 / speed for r in recorded.records]
    return Plan(iter(talks), iter(arrivals), tuple(primers))


def _common(one: Record, scale: Scale, count: int) -> int:
    """How many words of ``count`` an earlier prompt is to share."""
    if not one.cached_tokens:
        return 0
    return min(scale.words(one.cached_tokens + HALF_BLOCK), max(0, count - 1))


def _prefix(
    before: list[list[str]], common: int, rng: random.Random, primers: list[Conversation]
) -> list[str]:
    for earlier in reversed(before):
        if len(earlier) >= common:
            return earlier[:common]
    words = draw_words(rng, common)
    # the primer goes on behind the prefix, so that its last block is whole and can be found
    primers.append(Conversation((Turn((said(prompt([*words, *draw_words(rng, 16)])),), 1),)))
    return words
