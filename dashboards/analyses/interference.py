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
from itertools import accumulate
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
    """Sums by request, of all engines: lost and caused, and in how many steps."""

    lost_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    lost_steps: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    caused_ns: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))
    caused_steps: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))


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


class Blame:
    """Who lost and who caused in one engine's ``steps``, which are sorted by middle.

    Sums take time in the number of spans and prefilling steps, by prefix sums; who lost
    to whom (:meth:`causes`, :meth:`victims`) is worked out for the requests asked about.
    """

    def __init__(
        self,
        steps: Sequence[MixedStep],
        excess: Sequence[int],
        decodes: Sequence[Phase],
        prefills: Sequence[Phase],
    ) -> None:
        middles = [one.middle_ns for one in steps]
        self._excess = excess
        self._causers = _causers(middles, excess, prefills)
        self._ranges: dict[int, list[range]] = defaultdict(list)
        for phase in decodes:
            self._ranges[phase.request] += _ranges_of(middles, phase)

    def add_to(self, told: Told) -> None:
        """Add this engine's sums."""
        lost = list(accumulate(self._excess, initial=0))
        some = list(accumulate((one > 0 for one in self._excess), initial=0))
        decoding = [0] * (len(self._excess) + 1)
        for request, ranges in self._ranges.items():
            for one in ranges:
                told.lost_ns[request] += lost[one.stop] - lost[one.start]
                told.lost_steps[request] += some[one.stop] - some[one.start]
                decoding[one.start] += 1
                decoding[one.stop] -= 1
        for i, victims in enumerate(list(accumulate(decoding))[:-1]):
            for causer, part in self._causers[i] if victims else ():
                own = self._times(causer, i)
                if causer is not None and own:  # its own prefill is not another's
                    told.lost_ns[causer] -= part * own
                    told.lost_steps[causer] -= own * (0 < part == self._excess[i])
                told.caused_ns[causer] += part * (victims - own)
                told.caused_steps[causer] += part > 0 and victims > own

    def causes(self, victim: int) -> dict[int | None, int]:
        """How much ``victim`` lost to each other request."""
        found: dict[int | None, int] = defaultdict(int)
        for one in self._ranges.get(victim, ()):
            for i in one:
                for causer, part in self._causers[i]:
                    if causer != victim and part:
                        found[causer] += part
        return dict(found)

    def victims(self, causer: int | None) -> set[int]:
        """The requests that lost anything to ``causer``."""
        mine = [i for i, who in enumerate(self._causers) for c, part in who if c == causer and part]
        return {
            request
            for request, ranges in self._ranges.items()
            if request != causer
            and any(bisect_left(mine, r.start) < bisect_left(mine, r.stop) for r in ranges)
        }

    def _times(self, request: int | None, step: int) -> int:
        """How many decodes of ``request`` are in the step."""
        return 0 if request is None else sum(step in r for r in self._ranges.get(request, ()))


def _ranges_of(middles: Sequence[int], phase: Phase) -> list[range]:
    """The steps whose middle lies in ``phase`` and not in a time away from the engine."""
    at, end = bisect_left(middles, phase.start_ns), bisect_right(middles, phase.end_ns)
    found: list[range] = []
    for gone, back in phase.away:
        stop = min(end, bisect_left(middles, gone))
        if at < stop:
            found.append(range(at, stop))
        at = max(at, bisect_left(middles, back))
    return [*found, range(at, end)] if at < end else found


def _causers(
    middles: Sequence[int], excess: Sequence[int], prefills: Sequence[Phase]
) -> list[list[tuple[int | None, int]]]:
    """For each step who caused how much of its excess; the parts add up to it."""
    there: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for phase in prefills:
        mine = [i for one in _ranges_of(middles, phase) for i in one]
        for i in mine:
            there[i].append((phase.request, phase.weight / len(mine)))
    found: list[list[tuple[int | None, int]]] = []
    for i, amount in enumerate(excess):
        who = there.get(i, [])
        if not who:
            found.append([(None, amount)])
            continue
        parts = share_out(amount, [weight for _, weight in who])
        by_request: dict[int | None, int] = defaultdict(int)
        for (one, _), part in zip(who, parts, strict=True):
            by_request[one] += part
        found.append(list(by_request.items()))
    return found
