"""Engine stamps become stages by stated rules."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from proxy.request.call import (
    NO_STAMPS,
    REPAIR_LAST_TOKEN,
    REPAIR_ORDER,
    ChoiceMarks,
    EngineCall,
    stages_of,
)
from tracer.semconv import ITL_CAP

S = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * S)


def call(handed: float = 0.0) -> EngineCall:
    return EngineCall("id", "chat", ns(handed))


def lengths(made: EngineCall) -> tuple[float | None, ...]:
    stages = stages_of(made)
    return tuple(
        None if i is None else (i.end_ns - i.start_ns) / S
        for i in (stages.queue, stages.prefill, stages.decode)
    )


def test_a_last_token_stamp_that_was_never_updated_is_replaced_by_the_end():
    """scheduled 100.1, first 100.5, last 100.0, finished 101.5: decode is 1.0 (faults 22)."""
    made = call(100.0)
    made.note_queued(ns(100.0))
    made.note_scheduled(ns(100.1))
    made.prefilled_mono_ns = ns(100.5)
    made.ended_mono_ns = ns(101.5)
    made.choices[0] = ChoiceMarks(tokens=11, first_mono_ns=ns(100.5), last_mono_ns=ns(100.0))
    assert lengths(made) == (0.1, 0.4, 1.0)
    assert stages_of(made).repairs == (REPAIR_LAST_TOKEN,)


def test_a_preemption_in_decode_stays_in_decode():
    """queued 0, scheduled .5, first 1, preempted 1.5, back 2.5, end 3.5 (faults 23a)."""
    made = call()
    made.note_queued(0)
    made.note_scheduled(ns(0.5))
    made.note_output(0, 1, ns(1.0))
    made.note_preempted(ns(1.5))
    made.note_scheduled(ns(2.5))
    made.note_output(0, 1, ns(3.5))
    assert lengths(made) == (0.5, 0.5, 2.5)
    assert stages_of(made).preempted_ns == S
    assert len(made.preemptions) == 1


def test_a_preemption_in_prefill_stays_in_prefill():
    """queued 0, scheduled .5, preempted .8, back 2.0, first 2.4, end 3.0 (faults 23b)."""
    made = call()
    made.note_queued(0)
    made.note_scheduled(ns(0.5))
    made.note_preempted(ns(0.8))
    made.note_scheduled(ns(2.0))
    made.note_output(0, 1, ns(2.4))
    made.note_output(0, 1, ns(3.0))
    assert lengths(made) == (0.5, 1.9, 0.6)
    assert stages_of(made).preempted_ns == ns(1.2)


def test_a_call_the_engine_never_scheduled_has_no_stages():
    """Cancelled while it waited: nothing is guessed, nothing was mended, and it says so."""
    made = call()
    made.note_queued(5)
    assert stages_of(made).intervals() == []
    assert stages_of(made).repairs == ()
    assert made.source_detail == NO_STAMPS


def test_one_token_has_a_decode_of_zero_and_no_token_has_none():
    """Zero-token and embedding calls end with prefill; one token decodes for no time."""
    one = call()
    one.note_queued(0)
    one.note_scheduled(1)
    one.note_output(0, 1, 5)
    assert stages_of(one).decode is not None
    assert lengths(one)[2] == 0
    none = call()
    none.note_queued(0)
    none.note_scheduled(1)
    none.note_output(0, 0, 5)
    assert stages_of(none).decode is None
    assert stages_of(none).prefill is not None


def test_gaps_are_kept_per_choice_and_capped():
    """n=2: gaps of one sequence are not mixed with the other's, and a long answer is bounded."""
    made = call()
    for step in range(1, 4):
        made.note_output(0, 1, step * 10)
        made.note_output(1, 1, step * 10 + 1)
    assert made.choices[0].gaps_ns == [10, 10]
    assert made.choices[1].gaps_ns == [10, 10]
    for step in range(ITL_CAP + 50):
        made.note_output(0, 1, 100 + step)
    assert len(made.choices[0].gaps_ns) == ITL_CAP
    assert made.choices[0].tokens == ITL_CAP + 53


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=4, max_size=4),
    st.integers(0, 3),
    st.integers(0, 100),
)
def test_no_mix_of_stamps_gives_a_negative_duration(stamps, tokens, ended):
    """Whatever a source says, stages touch in order and never run backwards."""
    made = call()
    made.queued_mono_ns, made.scheduled_mono_ns, made.prefilled_mono_ns, last = stamps
    made.ended_mono_ns = ended
    made.choices[0] = ChoiceMarks(tokens=tokens, first_mono_ns=last, last_mono_ns=last)
    stages = stages_of(made)
    intervals = stages.intervals()
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(intervals))
    if stages.queue and made.queued_mono_ns > made.scheduled_mono_ns:
        assert REPAIR_ORDER in stages.repairs


def test_a_sealed_call_ends_with_its_request_and_says_that_it_was_cut_off():
    """A call that still runs when its record is made is not told as longer than the request."""
    running, done = call(), call()
    done.ended_mono_ns = 7
    for one in (running, done):
        one.seal(9)
    assert (running.ended_mono_ns, running.cut_off) == (9, True)
    assert (done.ended_mono_ns, done.cut_off) == (7, False)
