"""Which requests are read for a question about distributions, where there are very many.

The chosen requests are cut along time into slices of about as many requests each; of each
``one_in`` slices that follow one another one is read, whole. Which one is drawn by the
golden-ratio sequence, so that no rhythm of the load can fall in with it, and the same
question over the same requests reads the same ones. A slice is a condition on the time
alone: the store leaves out the rest without reading it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dashboards.filters import Filters, Where, where
from dashboards.models.sample import Sampled
from dashboards.queries.base import QueryLimits, QueryStore, count_of, run

SLICES: Final = 50
"""About so many slices are read: enough of them, and long enough to fill the store's granules."""
STEPS: Final = 2000
MOST_AROUND: Final = 5
"""In the slices lie at most about so many times ``most_read`` requests, chosen or not: the store
reads them all to find the chosen ones."""
GOLDEN: Final = (math.sqrt(5) - 1) / 2
_ENDS_SQL: Final = """\
SELECT count() AS n, toInt64(toUnixTimestamp64Nano(min(Timestamp))) AS first,
  toInt64(toUnixTimestamp64Nano(max(Timestamp))) AS last FROM {database:Identifier}.requests"""
_STEPS_SQL: Final = """\
SELECT toUInt16(intDiv(toUnixTimestamp64Nano(Timestamp) - {begin:Int64}, {width:Int64})) AS step,
  count() AS n FROM {database:Identifier}.requests WHERE"""


@dataclass(frozen=True, slots=True)
class Slice:
    """``[begin, end)`` in ns of the epoch, and about how many requests began in it."""

    begin: int
    end: int
    rows: float


@dataclass(frozen=True, slots=True)
class Part:
    """``where`` picks the requests to read; ``sampled`` says of how many, None: of all."""

    where: Where
    sampled: Sampled | None
    slices: tuple[Slice, ...] = ()

    @property
    def times(self) -> str:
        """SQL: the request was read, as far as its time says."""
        return within(self.slices) if self.slices else "true"

    def reading(self, n: int) -> Part:
        """The same, where ``n`` requests were found to be read."""
        if self.sampled is None:
            return self
        return replace(self, sampled=self.sampled.model_copy(update={"read": n}))

    @property
    def told(self) -> tuple[str, ...]:
        """What an answer says of it."""
        return () if self.sampled is None else (self.sampled.sentence(),)


def part_of(
    store: QueryStore, filters: Filters, limits: QueryLimits, *, count: bool = True
) -> Part:
    """All chosen requests up to ``limits.most_read`` of them or with ``exact``; else slices.

    Without ``count`` how many are read is left at 0, for who counts them on the way.

    Raises:
        UnavailableError: the store gave no answer.
    """
    picked = where(filters)
    if filters.exact:
        return Part(picked, None)
    steps, around = counted(store, filters, limits)
    total = round(sum(one.rows for one in steps))
    if total <= limits.most_read:
        return Part(picked, None)
    one_in = -(-max(total, around // MOST_AROUND) // limits.most_read)
    wanted = total / one_in / SLICES
    kept = chosen_slices(cut(_finer(store, picked, steps, 4 * wanted, limits), wanted), one_in)
    part = Where(f"{within(kept)} AND {picked.sql}", picked.params)
    found = Part(part, Sampled(one_in=one_in, slices=len(kept), read=0, of=total), kept)
    if not count:
        return found
    return found.reading(count_of(store, part, limits))


def counted(
    store: QueryStore, filters: Filters, limits: QueryLimits
) -> tuple[list[Slice], int]:
    """The chosen requests by steps of time of one length, and about how many began in that time.

    Steps without any are left out.
    """
    ends = run(store, _ENDS_SQL, {}, limits)[0]
    if not ends["n"]:
        return [], 0
    begin = max(int(ends["first"]), filters.since_unix_ns or 0)
    end = min(int(ends["last"]) + 1, filters.until_unix_ns or int(ends["last"]) + 1)
    if begin >= end:
        return [], 0
    steps = _by_width(store, where(filters), begin, end, -(-(end - begin) // STEPS), limits)
    every = int(ends["last"]) + 1 - int(ends["first"])
    return steps, int(ends["n"]) * (end - begin) // every


def _by_width(
    store: QueryStore, picked: Where, begin: int, end: int, width: int, limits: QueryLimits
) -> list[Slice]:
    params = {**picked.params, "begin": begin, "width": width}
    rows = run(store, f"{_STEPS_SQL} {picked.sql} GROUP BY step ORDER BY step", params, limits)
    return [
        Slice(at, min(end, at + width), float(row["n"]))
        for at, row in ((begin + int(row["step"]) * width, row) for row in rows)
    ]


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
        found += _by_width(store, within_it, one.begin, one.end, width, limits)
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
    times = " OR ".join(
        f"(Timestamp >= fromUnixTimestamp64Nano({one.begin - before_ns}, 'UTC') "
        f"AND Timestamp < fromUnixTimestamp64Nano({one.end + after_ns}, 'UTC'))"
        for one in slices
    )
    return f"({times or 'false'})"
