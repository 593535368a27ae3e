"""The highest rate that meets the limits: doubled until one does not, then halved in between."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

MOST_TRIES = 30
LOWEST_RATE, HIGHEST_RATE = 0.01, 1_000_000


@dataclass
class Bounds:
    """The highest rate known to meet the limits, and the lowest known not to."""

    best: float | None = None
    failed: float | None = None
    tried: list[float] = field(default_factory=list)


async def find_highest(
    first: float, precision: float, meets: Callable[[float], Awaitable[bool | None]]
) -> Bounds:
    """Try rates until ``failed`` is within ``precision`` (a share) of ``best``.

    ``meets`` tells of one rate; ``None`` ends the search with what is known. A rate
    above one that failed is never tried: more load is taken not to help.
    """
    found, rate = Bounds(), first
    while len(found.tried) < MOST_TRIES:
        told = await meets(rate)
        if told is None:
            break
        found.tried.append(rate)
        if told:
            found.best = rate
        else:
            found.failed = rate
        if found.failed is None:
            rate *= 2
            if rate > HIGHEST_RATE:
                break
        elif found.best is None:
            rate /= 2
            if rate < LOWEST_RATE:
                break
        elif found.failed <= found.best * (1 + precision):
            break
        else:
            rate = round(math.sqrt(found.best * found.failed), 6)
    return found
