"""Whether a task was done right, told later by the id of its trace."""

from __future__ import annotations

import pytest

import tracer
from tests.support.otlp_peer import otlp_peer
from tests.support.programs import run
from tracer import semconv
from tracer.testing import recording


def test_an_outcome_is_a_span_of_no_length_in_the_tasks_trace():
    """Told after the task's end: the same trace, no parent, no record of a request."""
    with recording() as seen:
        with tracer.trace("task"):
            trace_id = tracer.current_trace_id()
        assert tracer.outcome(trace_id, success=True, score=0.5, reason="checked by api_key=CANARY")
    task, told = seen.spans
    assert told.name == "outcome"
    assert told.context.trace_id == task.context.trace_id
    assert told.parent is None
    assert told.start_time == told.end_time
    assert dict(told.attributes) == {
        semconv.OUTCOME_SUCCESS: True, semconv.OUTCOME_SCORE: 0.5,
        semconv.OUTCOME_REASON: "checked by api_key=[hidden]",
    }  # fmt: skip
    assert semconv.RECORD_VERSION not in told.attributes


def test_the_current_trace_is_the_default_and_only_success_has_to_be_told():
    """Inside the task; an integer score is a double."""
    with recording() as seen, tracer.trace("task"):
        assert tracer.outcome(success=False)
        assert tracer.outcome(success=True, score=1)
    first, second, task = seen.spans
    assert {s.context.trace_id for s in seen.spans} == {task.context.trace_id}
    assert dict(first.attributes) == {semconv.OUTCOME_SUCCESS: False}
    assert type(second.attributes[semconv.OUTCOME_SCORE]) is float


@pytest.mark.parametrize("wrong", ["", "abc", "0" * 32, "g" * 32, 0, -1, 2**128, None])
def test_a_wrong_trace_id_is_one_sentence(wrong):
    """Whether anything is configured or not."""
    with pytest.raises(ValueError, match="32 hex digits"):
        tracer.outcome(wrong, success=True)


def test_a_score_that_is_no_number_is_refused_and_without_set_up_nothing_is_recorded():
    """NaN would be stored as if it were one."""
    with pytest.raises(ValueError, match="not a finite number"):
        tracer.outcome("1" * 32, success=True, score=float("nan"))
    assert tracer.outcome("1" * 32, success=True) is False


def test_an_outcome_arrives_from_another_process():
    """Upper-case ids are the same trace."""
    with otlp_peer() as peer:
        run("tracer.configure(endpoint=os.environ['AT'])\ntracer.outcome('AB' * 16, success=True, score=2)",
            AT=peer.url)  # fmt: skip
        [span] = peer.spans()
    assert span.trace_id == bytes.fromhex("ab" * 16)
    assert span.start_time_unix_nano == span.end_time_unix_nano
    told = {a.key: a.value for a in span.attributes}
    assert told[semconv.OUTCOME_SUCCESS].bool_value is True
    assert told[semconv.OUTCOME_SCORE].double_value == 2.0
