"""The partition law: every nanosecond has exactly one holder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.stages import Stage, StageInterval, critical_path, partition

S = 1_000_000_000
REAL = [stage for stage in Stage if stage is not Stage.UNATTRIBUTED]

intervals = st.lists(
    st.builds(
        lambda stage, start, length: StageInterval(stage, start, start + length),
        st.sampled_from(REAL),
        st.integers(-50, 150),
        st.integers(0, 120),
    ),
    max_size=12,
)


def seconds(**parts: float) -> dict[Stage, int]:
    """Expected exclusive times; stages that are not named are zero."""
    return {stage: round(parts.get(str(stage), 0.0) * S) for stage in Stage}


def at(stage: Stage, start: float, end: float) -> StageInterval:
    return StageInterval(stage, round(start * S), round(end * S))


@given(st.integers(0, 100), st.integers(0, 100), intervals)
def test_stage_times_sum_to_the_request_whatever_the_intervals(start, length, given_intervals):
    """Exclusive times add up to end minus start, none is negative, segments touch and never overlap."""
    divided = partition(start, start + length, given_intervals)
    assert divided.total_ns == length
    assert all(ns >= 0 for ns in divided.exclusive_ns.values())
    at_ns = start
    for segment in divided.segments:
        assert segment.start_ns == at_ns
        assert segment.end_ns > segment.start_ns
        at_ns = segment.end_ns
    assert at_ns == start + length or length == 0


@given(st.integers(1, 100), intervals, st.randoms(use_true_random=False))
def test_the_order_of_the_intervals_does_not_matter(length, given_intervals, rng):
    """The same spans in any order give the same division."""
    shuffled = list(given_intervals)
    rng.shuffle(shuffled)
    one, other = partition(0, length, given_intervals), partition(0, length, shuffled)
    assert one.exclusive_ns == other.exclusive_ns


@given(st.integers(1, 100), intervals)
def test_only_uncovered_time_is_unattributed(length, given_intervals):
    """An instant that any stage covers is never unattributed."""
    divided = partition(0, length, given_intervals)
    covered = set()
    for one in given_intervals:
        covered |= set(range(max(0, one.start_ns), min(length, one.end_ns)))
    assert divided.exclusive_ns[Stage.UNATTRIBUTED] == length - len(covered)


def test_stages_in_a_row_keep_their_own_times():
    """A plain request: each stage holds its own time and gaps are shown, not spread."""
    divided = partition(
        0, 5 * S,
        [at(Stage.PROMPT, 0, 0.4), at(Stage.QUEUE, 0.4, 1.0), at(Stage.PREFILL, 1.0, 2.0),
         at(Stage.DECODE, 2.0, 4.5), at(Stage.DELIVER, 4.8, 5.0)],
    )  # fmt: skip
    assert divided.exclusive_ns == seconds(
        prompt=0.4, queue=0.6, prefill=1.0, decode=2.5, deliver=0.2, unattributed=0.3
    )


def test_of_parallel_tools_the_last_to_finish_holds_the_time():
    """Tools 0–3 s and 1–5 s: the second holds 1–5, the first only what came before."""
    divided = partition(0, 5 * S, [at(Stage.TOOL, 0, 3), at(Stage.RETRIEVAL, 1, 5)])
    assert divided.exclusive_ns == seconds(tool=1, retrieval=4)


def test_a_stage_that_ran_twice_has_its_times_added_and_counted():
    """An agent's two rounds of prefill are one sum and a count of two."""
    divided = partition(
        0, 4 * S, [at(Stage.PREFILL, 0, 1), at(Stage.TOOL, 1, 2), at(Stage.PREFILL, 2, 4)]
    )
    assert divided.exclusive_ns == seconds(prefill=3, tool=1)
    assert divided.counts[Stage.PREFILL] == 2


def test_what_lies_outside_the_request_is_cut_off():
    """A stage that began before or ended after the request counts only inside it."""
    divided = partition(S, 2 * S, [at(Stage.DECODE, 0, 1.5), at(Stage.DELIVER, 1.5, 9)])
    assert divided.exclusive_ns == seconds(decode=0.5, deliver=0.5)


def test_an_interval_or_request_that_ends_before_it_starts_is_refused():
    """Negative durations never get in: the source's stamps must be repaired first."""
    with pytest.raises(ValueError, match="repair"):
        StageInterval(Stage.DECODE, 2, 1)
    with pytest.raises(ValueError, match="before its start"):
        partition(2, 1, [])


def by_the_rule(start, end, given):
    """The walk as the rule says it, one look at all intervals a step."""
    order = {stage: i for i, stage in enumerate(Stage)}
    left = [i for i in given if max(i.start_ns, start) < min(i.end_ns, end)]
    path, at_ns = [], end
    while at_ns > start:
        left = [i for i in left if i.start_ns < at_ns]
        if not left:
            return [(None, start, at_ns), *path]
        one = min(
            left, key=lambda i: (-min(i.end_ns, at_ns), i.end_ns, i.start_ns, order[i.stage])
        )
        if one.end_ns < at_ns:
            path.insert(0, (None, one.end_ns, at_ns))
            at_ns = one.end_ns
        path.insert(0, (one, max(one.start_ns, start), at_ns))
        at_ns = max(one.start_ns, start)
    return path


@given(st.integers(0, 50), st.integers(0, 100), intervals)
def test_the_critical_path_is_the_one_of_the_rule(start, length, given_intervals):
    """The heap gives the same holders and bounds as the rule does word by word."""
    end = start + length
    assert critical_path(start, end, given_intervals) == by_the_rule(start, end, given_intervals)
