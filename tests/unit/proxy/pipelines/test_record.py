"""The prompt's pieces around retrievals and tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.request.call import EngineCall
from proxy.request.record import Arrival, Marks, partition_of
from proxy.request.work import StageRun
from tracer.stages import Stage


def call(handed: int, queued: int, last: int) -> EngineCall:
    made = EngineCall("c", "chat", handed, queued_mono_ns=queued, scheduled_mono_ns=queued + 1)
    made.finished = True
    made.note_output(0, 1, queued + 2)
    made.note_output(0, 1, last)
    return made


def run(stage: Stage, start: int, end: int) -> StageRun:
    return StageRun(stage, "x", 1, start, end)


def test_prompt_lies_around_retrievals_and_before_each_further_call():
    """Parallel retrievals leave what neither covers; a tool ends where the next prompt begins."""
    runs = (run(Stage.RETRIEVAL, 10, 30), run(Stage.RETRIEVAL, 20, 40), run(Stage.TOOL, 110, 150))
    marks = Marks(0, 300, Arrival(0), (call(50, 60, 100), call(160, 170, 200)), True, runs=runs)
    divided, _, prompts, _ = partition_of(marks)
    assert [(p.start_ns, p.end_ns) for p in prompts] == [(0, 10), (40, 60), (150, 170)]
    assert divided.exclusive_ns[Stage.RETRIEVAL] == 30
    assert divided.exclusive_ns[Stage.TOOL] == 40
    assert divided.exclusive_ns[Stage.UNATTRIBUTED] == 10
    assert divided.exclusive_ns[Stage.DELIVER] == 100


times = st.lists(st.integers(0, 1000), min_size=2, max_size=2).map(sorted)


@given(st.lists(times, min_size=1, max_size=6), st.lists(times, max_size=3))
def test_whatever_ran_the_stages_add_up_and_no_prompt_is_negative(spans, calls):
    """Runs and calls in any order make a partition of exactly the request."""
    runs = tuple(run(Stage.TOOL, a, b) for a, b in spans)
    marks = Marks(0, 900, Arrival(0), tuple(call(a, a, b + 3) for a, b in calls), True, runs=runs)
    divided, _, prompts, _ = partition_of(marks)
    assert divided.total_ns == 900
    assert all(p.start_ns < p.end_ns <= 900 for p in prompts)
