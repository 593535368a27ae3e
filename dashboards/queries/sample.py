"""Which requests are read for a question about distributions, where there are very many.

The chosen requests are cut along time into slices of about as many requests each; of each
``one_in`` slices that follow one another one is read, whole. Which one is drawn by the
golden-ratio sequence, so that no rhythm of the load can fall in with it, and the same
question over the same requests reads the same ones. A slice is a condition on the time
alone: the store leaves out the rest without reading it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.models.sample import Sampled
from dashboards.queries.base import QueryLimits, QueryStore, count_of
from dashboards.queries.steps import STEPS, Slice, by_width, counted

SLICES: Final = 50
"""About so many slices are read: enough of them, and long enough to fill the store's granules."""
MOST_AROUND: Final = 5
"""In the slices lie at most about so many times ``most_read`` requests, chosen or not: the store
reads them all to find the chosen ones."""
FEW_SPANS: Final = 4
GOLDEN: Final = (math.sqrt(5) - 1) / 2

@dataclass(frozen=True, slots=True)
class Part:
    """``where`` picks the requests to read; ``sampled`` says of how many, None: of all."""

    where: Where
    sampled: Sampled | None
    slices: tuple[Slice, ...] = ()
    sums: Mapping[str, int] = field(default_factory=dict)
    """Of all chosen requests, where they were counted with columns."""

    @property
    def times(self) -> str:
        """SQL: the request was read, as far as its time says."""
        return within(self.slices) if self.slices else "true"

    def reading(self, n: int, of: int | None = None) -> Part:
        """The same, where ``n`` requests were found to be read, and ``of`` to be chosen."""
        if self.sampled is None:
            return self
        known = {"read": n} if of is None else {"read": n, "of": of}
        return replace(self, sampled=self.sampled.model_copy(update=known))

    @property
    def told(self) -> tuple[str, ...]:
        """What an answer says of it."""
        return () if self.sampled is None else (self.sampled.sentence(),)


def part_of(
    store: QueryStore,
    filters: Filters,
    limits: QueryLimits,
    *,
    count: bool = True,
    columns: Sequence[str] = (),
) -> Part:
    """All chosen requests up to ``limits.most_read`` of them or with ``exact``; else slices.

    Without ``count`` how many are read is left at 0, for who counts them on the way. ``columns``
    are sums over all chosen requests that come for nothing where these are read to be counted.

    Raises:
        UnavailableError: the store gave no answer.
    """
    picked = where(filters)
    if filters.exact:
        return Part(picked, None)
    there = counted(store, filters, limits, columns)
    total = there.total
    if total <= limits.most_read:
        return Part(picked, None)
    one_in = -(-max(total, there.around // MOST_AROUND) // limits.most_read)
    wanted = total / one_in / SLICES
    kept = chosen_slices(cut(_finer(store, picked, there.steps, 4 * wanted, limits), wanted), one_in)
    part = Where(f"{within(kept)} AND {picked.sql}", picked.params)
    told = Sampled(one_in=one_in, slices=len(kept), read=0, of=total)
    found = Part(part, told, kept, there.sums)
    return found.reading(count_of(store, part, limits)) if count else found


def _finer(
    store: QueryStore, picked: Where, steps: list[Slice], many: float, limits: QueryLimits
) -> list[Slice]:
    """The same, with steps of their own for the few steps in which nearly all requests began."""
    heavy = [one for one in steps if one.rows > many]
    if not 0 < len(heavy) <= SLICES:
        return steps
    found = [one for one in steps if one.rows <= many]
    for one in heavy:
        within_it = Where(f"{within([one])} AND {picked.sql}", picked.params)
        width = -(-(one.end - one.begin) * len(heavy) // STEPS)
        found += by_width(store, within_it, (one.begin, one.end), width, limits)[0]
    return sorted(found, key=lambda one: one.begin)


def cut(steps: Sequence[Slice], rows: float) -> list[Slice]:
    """The steps as slices of about ``rows`` requests: several steps together, or parts of one."""
    found: list[Slice] = []
    open_one: Slice | None = None
    for step in steps:
        pieces = max(1, min(round(step.rows / rows), step.end - step.begin))
        for i in range(pieces):
            begin, end = (step.begin + (step.end - step.begin) * j // pieces for j in (i, i + 1))
            held = 0.0 if open_one is None else open_one.rows
            first = begin if open_one is None else open_one.begin
            open_one = Slice(first, end, held + step.rows / pieces)
            if open_one.rows >= rows:
                found.append(open_one)
                open_one = None
    return found if open_one is None else [*found, open_one]


def chosen_slices(slices: Sequence[Slice], one_in: int) -> tuple[Slice, ...]:
    """One of each ``one_in`` slices that follow one another; of the last ones one if it is there."""
    places = (
        i * one_in + int((i + 1) * GOLDEN % 1 * one_in) for i in range(-(-len(slices) // one_in))
    )
    return tuple(slices[place] for place in places if place < len(slices))


def within(slices: Sequence[Slice], before_ns: int = 0, after_ns: int = 0) -> str:
    """SQL: ``Timestamp`` lies in one of the slices, or so much before or after it."""
    spans = _spans(slices, before_ns, after_ns)
    times = " OR ".join(
        f"(Timestamp >= fromUnixTimestamp64Nano({begin}, 'UTC') "
        f"AND Timestamp < fromUnixTimestamp64Nano({end}, 'UTC'))"
        for begin, end in spans
    )
    if len(spans) < FEW_SPANS:
        return f"({times or 'false'})"
    bounds = ", ".join(str(bound) for bound in (0, *(at for span in spans for at in span)))
    begins = ", ".join(str(begin) for begin, _ in spans)
    # the key leaves out granules by the plain form; rows are told by one search in sorted bounds
    return (
        f"(indexHint({times}) AND "
        f"roundDown(toUnixTimestamp64Nano(Timestamp), CAST([{bounds}], 'Array(Int64)')) IN ({begins}))"
    )


def _spans(slices: Sequence[Slice], before_ns: int, after_ns: int) -> list[tuple[int, int]]:
    """The times of the slices in order, those that touch or overlap as one."""
    found: list[tuple[int, int]] = []
    for one in sorted(slices, key=lambda each: each.begin):
        begin, end = max(1, one.begin - before_ns), one.end + after_ns
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(found.pop()[1], end)
        found.append((begin, end))
    return found
