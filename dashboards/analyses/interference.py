"""Decode time lost to other requests' prefills, and who caused it.

An engine step that prefills and decodes at once takes longer than one that only decodes.
For each step ``i`` with prefills, with ``b`` decoding requests::

    excess_i = max(0, time_i - baseline(b))

``baseline(b)`` is the median time of the decode-only steps of that engine with ``b``
decoding requests; where there are fewer than ``LEAST_STEPS`` of them, the straight line
between the nearest sizes that have enough (beyond the outermost, that one's).

A step belongs to the span that holds its middle: to a request's ``decode`` span (not while
it was preempted) it is a step in which that request decodes, to a ``prefill`` span one in
which it prefills. Every request that decodes in step ``i`` loses ``excess_i``. The causers
are the requests that prefill in it; each causes a part of ``excess_i`` by its prompt tokens
that were not cached over the number of steps of its prefill. So::

    sum over victims of lost = sum over causers of caused
                             = sum over i of excess_i * victims_i

to the nanosecond, with one causer "not known" for steps in which no stored request prefills.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dashboards.analyses.stats import share_out

LEAST_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class MixedStep:
    """A step that prefilled and decoded."""

    start_ns: int
    duration_ns: int
    decode_requests: int

    @property
    def middle_ns(self) -> int:
        return self.start_ns + self.duration_ns // 2


@dataclass(frozen=True, slots=True)
class Phase:
    """A prefill or decode span of a request; ``away`` are its preempted times."""

    request: int
    start_ns: int
    end_ns: int
    weight: float = 0.0
    away: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Told:
    """Sums of one engine: by request lost and caused, and how many steps of each."""

    lost_ns: dict[int, int] = field(default_factory=dict)
    lost_steps: dict[int, int] = field(default_factory=dict)
    caused_ns: dict[int | None, int] = field(default_factory=dict)
    caused_steps: dict[int | None, set[tuple[int, int]]] = field(default_factory=dict)
    victims_of: dict[int | None, set[int]] = field(default_factory=dict)
    pairs: dict[int, dict[int | None, int]] = field(default_factory=dict)


def baseline(known: Mapping[int, int], decoding: int) -> int | None:
    """The decode-only step time for ``decoding`` requests, from medians by batch size."""
    if not known:
        return None
    if decoding in known:
        return known[decoding]
    sizes = sorted(known)
    above = bisect_left(sizes, decoding)
    if above == 0:
        return known[sizes[0]]
    if above == len(sizes):
        return known[sizes[-1]]
    low, high = sizes[above - 1], sizes[above]
    part = (decoding - low) / (high - low)
    return round(known[low] + (known[high] - known[low]) * part)


def excesses(steps: Sequence[MixedStep], known: Mapping[int, int]) -> list[int]:
    """``excess`` of each step; 0 where there is no baseline at all."""
    found: list[int] = []
    for one in steps:
        usual = baseline(known, one.decode_requests)
        found.append(max(0, one.duration_ns - usual) if usual is not None else 0)
    return found


def blame(
    steps: Sequence[MixedStep],
    excess: Sequence[int],
    decodes: Sequence[Phase],
    prefills: Sequence[Phase],
    told: Told,
) -> None:
    """Add to ``told`` who lost and who caused in one engine's ``steps``, sorted by middle."""
    middles = [one.middle_ns for one in steps]
    causers = _causers(middles, excess, prefills)
    for phase in decodes:
        for i in _steps_of(middles, phase):
            if excess[i]:
                _lose(told, phase.request, steps[i], causers[i])


def _steps_of(middles: Sequence[int], phase: Phase) -> list[int]:
    """The steps whose middle lies in ``phase`` and not in a time away from the engine."""
    inside = range(bisect_left(middles, phase.start_ns), bisect_right(middles, phase.end_ns))
    return [i for i in inside if not any(a <= middles[i] < b for a, b in phase.away)]


def _causers(
    middles: Sequence[int], excess: Sequence[int], prefills: Sequence[Phase]
) -> list[list[tuple[int | None, int]]]:
    """For each step who caused how much of its excess; the parts add up to it."""
    there: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for phase in prefills:
        mine = _steps_of(middles, phase)
        for i in mine:
            there[i].append((phase.request, phase.weight / len(mine)))
    found: list[list[tuple[int | None, int]]] = []
    for i, amount in enumerate(excess):
        who = there.get(i, [])
        if not who:
            found.append([(None, amount)])
            continue
        parts = share_out(amount, [weight for _, weight in who])
        found.append([(one, part) for (one, _), part in zip(who, parts, strict=True)])
    return found


def _lose(
    told: Told, victim: int, step: MixedStep, causers: Sequence[tuple[int | None, int]]
) -> None:
    mine = told.pairs.setdefault(victim, {})
    lost = 0
    for causer, part in causers:
        if causer == victim or not part:  # its own prefill is not another's
            continue
        lost += part
        told.caused_ns[causer] = told.caused_ns.get(causer, 0) + part
        told.caused_steps.setdefault(causer, set()).add((step.start_ns, step.duration_ns))
        told.victims_of.setdefault(causer, set()).add(victim)
        mine[causer] = mine.get(causer, 0) + part
    if lost:
        told.lost_ns[victim] = told.lost_ns.get(victim, 0) + lost
        told.lost_steps[victim] = told.lost_steps.get(victim, 0) + 1
