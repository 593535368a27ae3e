"""The calls of one contestant, timed by pytest-benchmark; started by ``run.py``, in a process of its own.

Turns of the raw span and of each call follow one another, so that what slows the machine for a
while slows both. The contestant's name is in ``STAGELENS_CONTESTANT``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import contestants
import pytest
from contestants import CALLS, PLAIN, ROUNDS, TURNS, WITHOUT

NAME = os.environ["STAGELENS_CONTESTANT"]
RAW, CALLED, OFF = contestants.set_up(NAME)


def timed() -> list[tuple[str, Callable[[int], object]]]:
    """What is timed in each turn, by name; a span that is compared with has ``raw`` before it."""
    found = [("raw", RAW)]
    for name, call in CALLED.items():
        if (own := contestants.beside(call)) is not None:
            found.append((f"raw: {name}", own))
        found.append((name, call))
    return found if OFF is None else [*found, (PLAIN, contestants.work), (WITHOUT, OFF)]


@pytest.mark.parametrize(("name", "call"), timed(), ids=[name for name, _ in timed()])
@pytest.mark.parametrize("turn", range(TURNS))
def test_a_call(benchmark: Any, turn: int, name: str, call: Callable[[int], object]) -> None:  # noqa: ANN401
    """One turn of one call, told in the result under its name."""
    benchmark.extra_info.update(name=name, turn=turn)
    target = contestants.ready(call)
    benchmark.pedantic(target, args=(1,), rounds=ROUNDS, iterations=CALLS, warmup_rounds=1)
