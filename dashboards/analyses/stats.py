"""The little statistics that the analyses share; each says its rule and its source."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Z: Final = 1.959964
"""Two-sided 95 % of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, and from how many points it was taken."""

    value: float
    low: float
    high: float
    n: int


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The score interval of a share (E. B. Wilson, 1927); ``n`` > 0."""
    share, spread = hits / n, Z * Z / n
    middle = share + spread / 2
    reach = Z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (middle - reach) / (1 + spread), (middle + reach) / (1 + spread)


def newcombe(hits_a: int, n_a: int, hits_b: int, n_b: int) -> tuple[float, float]:
    """The interval of ``a - b`` of two shares (R. G. Newcombe, 1998, method 10)."""
    a, b = hits_a / n_a, hits_b / n_b
    (low_a, high_a), (low_b, high_b) = wilson(hits_a, n_a), wilson(hits_b, n_b)
    return (
        a - b - math.hypot(a - low_a, high_b - b),
        a - b + math.hypot(high_a - a, b - low_b),
    )


def slope(points: Sequence[tuple[float, float]]) -> Estimate | None:
    """The slope of ``y`` over ``x`` by Theil and Sen: the median of all pairs' slopes.

    The interval is Sen's (1968), from the variance of Kendall's tau with ties in ``x``.
    One point in three may be far off without moving it much. ``None`` where there are
    fewer than two different ``x``. Takes time in the square of the number of points.
    """
    n = len(points)
    slopes = sorted(
        (y2 - y1) / (x2 - x1)
        for i, (x1, y1) in enumerate(points)
        for x2, y2 in points[i + 1 :]
        if x2 != x1
    )
    if not slopes:
        return None
    same = sum(t * (t - 1) * (2 * t + 5) for t in Counter(x for x, _ in points).values())
    reach = Z * math.sqrt((n * (n - 1) * (2 * n + 5) - same) / 18)
    last = len(slopes) - 1
    low = min(last, max(0, round((len(slopes) - reach) / 2) - 1))
    high = max(0, min(last, round((len(slopes) + reach) / 2)))
    return Estimate(median(slopes), slopes[low], slopes[high], n)


def median(ordered: Sequence[float]) -> float:
    """Of sorted, non-empty values."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def share_out(amount: int, weights: Sequence[float]) -> list[int]:
    """``amount`` divided by ``weights`` into whole numbers that add up to it exactly.

    Largest remainder first; equal parts where no weight is above 0.
    """
    total = sum(weights)
    parts = [amount * w / total for w in weights] if total > 0 else [amount / len(weights)] * len(weights)
    dealt = [min(math.floor(part), amount) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: dealt[i] - parts[i])
    left = amount - sum(dealt)
    for i in order[: max(0, left)]:
        dealt[i] += 1
    dealt[order[0]] += amount - sum(dealt)
    return dealt
