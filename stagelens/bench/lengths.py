"""Distributions of lengths, as users write them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST = 10_000_000
"""Longer ones are cut, as the far end of a wide distribution would give now and then."""
_RULE = (
    "write a number, uniform:LOW,HIGH, normal:MEAN,SD, lognormal:MEAN,SD, exponential:MEAN "
    "or choice:A,B,…"
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Whole numbers from 1 up; ``text`` is what was written."""

    text: str
    draw: Callable[[random.Random], int]


def parse_lengths(text: str) -> Lengths:
    """The distribution that ``text`` means. ``lognormal`` has its mean and deviation, not log's.

    Raises:
        ValueError: one sentence with what can be written.
    """
    kind, _, rest = text.strip().partition(":")
    try:
        values = [float(part) for part in (rest or kind).split(",")]
    except ValueError:
        raise ValueError(f"length {text!r} is not known: {_RULE}") from None
    if not all(math.isfinite(v) and 0 <= v <= MOST for v in values):
        raise ValueError(f"length {text!r} has a number that no length is: {_RULE}")
    make = _KINDS.get(kind if rest else "fixed")
    found = make(values) if make else None
    if found is None:
        raise ValueError(f"length {text!r} is none, by its form or its values: {_RULE}")
    return Lengths(text.strip(), lambda rng: max(1, min(MOST, round(found(rng)))))


Draw = Callable[[random.Random], float]


def _fixed(values: Sequence[float]) -> Draw | None:
    return (lambda _: values[0]) if len(values) == 1 and values[0] >= 1 else None


def _uniform(values: Sequence[float]) -> Draw | None:
    if len(values) != 2 or values[0] > values[1]:
        return None
    low, high = map(int, values)
    return lambda rng: rng.randint(low, high)


def _normal(values: Sequence[float]) -> Draw | None:
    return (lambda rng: rng.gauss(values[0], values[1])) if len(values) == 2 else None


def _lognormal(values: Sequence[float]) -> Draw | None:
    if len(values) != 2 or values[0] <= 0:
        return None
    spread = math.log1p((values[1] / values[0]) ** 2)
    centre = math.log(values[0]) - spread / 2
    return lambda rng: rng.lognormvariate(centre, math.sqrt(spread))


def _exponential(values: Sequence[float]) -> Draw | None:
    if len(values) != 1 or values[0] <= 0:
        return None
    return lambda rng: rng.expovariate(1 / values[0])


def _choice(values: Sequence[float]) -> Draw:
    return lambda rng: rng.choice(values)


_KINDS: dict[str, Callable[[Sequence[float]], Draw | None]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "exponential": _exponential,
    "choice": _choice,
}
