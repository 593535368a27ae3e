"""Percentiles and the figures of one level of a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagelens.bench.models import Figures

WEAK_BELOW = ((50, 2), (90, 10), (95, 20), (99, 100))


def percentile(values: Sequence[float], level: float) -> float | None:
    """Of sorted ``values``, with linear interpolation between the nearest two; None of none."""
    if not values:
        return None
    place = (len(values) - 1) * level / 100
    low = int(place)
    if low + 1 >= len(values) or place == low:
        return values[low]
    return values[low] + (values[low + 1] - values[low]) * (place - low)


def figures(measure: str, values: Iterable[float | None]) -> Figures:
    """The distribution of ``values``; ``None`` counts as no data."""
    given = list(values)
    known = sorted(v for v in given if v is not None)
    at = {f"p{level}_ns": percentile(known, level) for level in (50, 90, 95, 99)}
    return Figures(
        measure=measure,
        n=len(known),
        no_data=len(given) - len(known),
        mean_ns=sum(known) / len(known) if known else None,
        max_ns=known[-1] if known else None,
        weak=tuple(f"p{level}" for level, least in WEAK_BELOW if 0 < len(known) < least),
        **at,
    )
