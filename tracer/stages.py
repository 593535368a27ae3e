"""The stages of a request, and the rule by which they divide its time.

Every figure in Stagelens rests on one law: the exclusive stage times of a
request add up to its end-to-end time, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import TypeVar


class Stage(StrEnum):
    """What can hold an instant of a request, in the order requests go through."""

    PROMPT = "prompt"
    RETRIEVAL = "retrieval"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    TOOL = "tool"
    DELIVER = "deliver"
    UNATTRIBUTED = "unattributed"


_ORDER = {stage: place for place, stage in enumerate(Stage)}
_NONE = dict.fromkeys(Stage, 0)


@dataclass(frozen=True, slots=True)
class StageInterval:
    """One run of one stage, in nanoseconds of one clock; ``end_ns >= start_ns``."""

    stage: Stage
    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError(
                f"stage {self.stage} ends at {self.end_ns} ns, before its start "
                f"{self.start_ns} ns: repair the source's stamps first"
            )


Held = TypeVar("Held", bound=StageInterval)
"""A stage's interval, or one that knows more of itself."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Who held each instant of a request.

    ``segments`` cover the request without gap or overlap, in time order;
    ``exclusive_ns`` sums them by stage and holds every stage; ``counts`` is how
    often each stage ran, whether or not it was on the critical path.
    """

    segments: tuple[StageInterval, ...]
    exclusive_ns: Mapping[Stage, int]
    counts: Mapping[Stage, int]

    @property
    def total_ns(self) -> int:
        """The end-to-end time: the sum of all exclusive times."""
        return sum(self.exclusive_ns.values())


def partition(start_ns: int, end_ns: int, intervals: Iterable[StageInterval]) -> Partition:
    """Give each instant of ``[start_ns, end_ns]`` to exactly one stage.

    Walks the critical path backwards from the end: the stage that finished last
    before the point reached is the one that progress waited for, so it holds the
    time back to its own start, and the walk goes on from there. Where several
    run at the point reached, the one that ends soonest after it is taken, then
    the one that began first, then the order of :class:`Stage`. Time no stage
    covers is ``unattributed``; parts outside the request are cut off.

    Raises:
        ValueError: if ``end_ns < start_ns``.
    """
    if end_ns < start_ns:
        raise ValueError(f"request ends at {end_ns} ns, before its start {start_ns} ns")
    given = list(intervals)
    counts = dict(_NONE)
    for one in given:
        counts[one.stage] += 1
    exclusive = dict(_NONE)
    segments: list[StageInterval] = []
    for holder, begin, end in critical_path(start_ns, end_ns, given):
        stage = Stage.UNATTRIBUTED if holder is None else holder.stage
        exclusive[stage] += end - begin
        segments.append(StageInterval(stage, begin, end))
    return Partition(tuple(segments), exclusive, counts)


def critical_path(
    start_ns: int, end_ns: int, intervals: Iterable[Held]
) -> list[tuple[Held | None, int, int]]:
    """Who held ``[start_ns, end_ns]`` from when to when, found from the end backwards.

    By the rule of :func:`partition`; ``None`` holds what no interval covers.
    """
    left = [i for i in intervals if max(i.start_ns, start_ns) < min(i.end_ns, end_ns)]
    left.sort(key=lambda i: i.end_ns)
    running: list[tuple[int, int, int, int, Held]] = []  # those that end at `at` or after it
    path: list[tuple[Held | None, int, int]] = []
    at = end_ns
    while at > start_ns:
        while left and left[-1].end_ns >= at:
            one = left.pop()
            heappush(running, (one.end_ns, one.start_ns, _ORDER[one.stage], len(left), one))
        while running and running[0][1] >= at:
            heappop(running)
        if running:
            holder = running[0][-1]
            begin = max(holder.start_ns, start_ns)
            path.append((holder, begin, at))
        else:
            begin = left[-1].end_ns if left else start_ns
            path.append((None, begin, at))
        at = begin
    path.reverse()
    return path
