"""The engine's steps below a trace, who shared them, and the GPU's gauges."""

from __future__ import annotations

import pytest

from dashboards.errors import NotStoredError
from dashboards.queries.engine import engine
from tests.unit.dashboards.conftest import HandStore

MS = 1_000_000
ID, PREFILLING, DECODING, LATER = ("ab" * 16, "cd" * 16, "ef" * 16, "11" * 16)


def phase(
    trace: str, stage: str, start: int, duration: int, instance: str = "a"
) -> dict[str, object]:
    return {
        "TraceId": trace, "SpanId": f"{trace[:4]}{stage}", "ParentSpanId": "r" if trace == ID else "x",
        "SpanName": stage, "start": start * MS, "duration": duration * MS,
        "SpanAttributes": {"stagelens.stage": stage},
        "ResourceAttributes": {"service.instance.id": instance},
    }  # fmt: skip


@pytest.fixture
def filled(store: HandStore) -> HandStore:
    """A request queued 0-10 ms, prefilled 10-30 ms and decoded 30-100 ms among others, in ten steps."""
    store.spans(
        {"TraceId": ID, "SpanId": "r", "SpanName": "POST", "start": -5 * MS, "duration": 120 * MS},
        phase(ID, "queue", 0, 10), phase(ID, "prefill", 10, 20), phase(ID, "decode", 30, 70),
        phase(PREFILLING, "prefill", 40, 10), phase(PREFILLING, "decode", 50, 500),
        phase(DECODING, "decode", -400, 420), phase(LATER, "decode", 100, 50),
        phase("99" * 16, "decode", 0, 100, instance="b"),
    )  # fmt: skip
    store.steps(*(
        {"start": n * 10 * MS, "duration": 10 * MS, "DecodeTokens": n, "DecodeRequests": n, "Running": 2,
         "PrefillTokens": 512 if n == 4 else 0, "PrefillRequests": int(n == 4), "KvCacheUsage": 0.5}
        for n in range(12)
    ))  # fmt: skip
    store.steps({"start": 20 * MS, "duration": 10 * MS, "ServiceInstance": "b"})
    return store


def test_steps_are_those_of_the_requests_engine_and_time(filled):
    """Ten steps of its own instance, from the queue to the last token, each with the stage it was in."""
    found = engine(filled, ID)
    assert [step.offset_ns // MS for step in found.steps] == [5 + n * 10 for n in range(10)]
    assert [step.stages for step in found.steps] == [
        ("queue",), *[("prefill",)] * 2, *[("decode",)] * 7,
    ]  # fmt: skip
    assert (found.steps[4].prefill_tokens, found.steps[4].prefill_requests) == (512, 1)
    assert found.steps[4].kv_cache_usage == 0.5
    assert found.steps_left_out == 0


def test_sharers_are_those_computed_in_the_same_steps(filled):
    """One prefill shares one step, its decode five, one that ended early shares one; others none."""
    found = engine(filled, ID)
    shared = {(one.trace_id, one.stage): one.steps for one in found.sharers}
    assert shared == {
        (PREFILLING, "prefill"): 1, (PREFILLING, "decode"): 5, (DECODING, "decode"): 1,
    }  # fmt: skip


def test_limits_leave_the_rest_out_and_count_it(filled, monkeypatch):
    """The earliest steps and the longest overlaps are kept."""
    monkeypatch.setattr("dashboards.queries.engine.MOST_STEPS", 4)
    monkeypatch.setattr("dashboards.queries.engine.MOST_SHARERS", 1)
    found = engine(filled, ID)
    assert (len(found.steps), found.steps_left_out) == (4, 6)
    assert [one.stage for one in found.sharers] == ["decode"]
    assert (found.sharers[0].trace_id, found.sharers_left_out) == (PREFILLING, 2)


def test_gpu_gauges_around_the_trace_are_found_by_what_they_are(filled):
    """By name or by hw.type, a line a GPU, within the margin; other gauges and times are left out."""
    filled.gauges(
        "hw.gpu.utilization", {0: 0.25, 1000 * MS: 0.75, -20_000 * MS: 1.0}, Attributes={"gpu": "0"}
    )
    filled.gauges("hw.gpu.utilization", {0: 0.5}, Attributes={"gpu": "1"}, MetricUnit="1")
    filled.gauges("hw.power", {0: 300.0}, Attributes={"hw.type": "gpu"})
    filled.gauges("queue.length", {0: 3.0})
    found = engine(filled, ID).gauges
    points = [[(p.offset_ns // MS, p.value) for p in g.points] for g in found]
    assert [(g.name, g.attributes.get("gpu"), p) for g, p in zip(found, points, strict=True)] == [
        ("hw.gpu.utilization", "0", [(5, 0.25), (1005, 0.75)]),
        ("hw.gpu.utilization", "1", [(5, 0.5)]),
        ("hw.power", None, [(5, 300.0)]),
    ]  # fmt: skip


def test_a_trace_without_an_engine_has_empty_lanes(store):
    """An upstream's request: no steps, no sharers, no gauges, and no error."""
    store.spans({"TraceId": ID, "SpanId": "r", "duration": 5})
    found = engine(store, ID)
    assert (found.phases, found.steps, found.sharers, found.gauges) == ((), (), (), ())


def test_an_unknown_trace_is_said(store):
    """As for the trace itself."""
    with pytest.raises(NotStoredError, match="no trace"):
        engine(store, "dd" * 16)
