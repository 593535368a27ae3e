"""When requests are sent: endless schedules, in seconds from the start."""

from __future__ import annotations

import random
from collections.abc import Iterator


def schedule(kind: str, rate: float, burstiness: float, rng: random.Random) -> Iterator[float]:
    """Arrivals at ``rate`` a second.

    ``constant``: evenly spaced. ``poisson``: independent of each other. ``gamma``: gaps
    whose standard deviation is ``burstiness`` times their mean: 1 is Poisson, more comes
    in bursts.
    """
    at = 0.0
    mean = 1.0 / rate
    shape = 1.0 / burstiness**2
    while True:
        yield at
        if kind == "constant":
            at += mean
        elif kind == "poisson":
            at += rng.expovariate(rate)
        else:
            at += rng.gammavariate(shape, mean / shape)
