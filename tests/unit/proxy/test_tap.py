"""The engine tap hears an engine that speaks vLLM's forms, and lives with one that does not."""

from __future__ import annotations

import asyncio
import logging
from enum import IntEnum
from types import SimpleNamespace

import pytest

from proxy.engine.vllm import EngineTap
from proxy.recorder import EngineLoad
from proxy.request.call import stages_of
from proxy.request.live import CURRENT
from tests.support.clock import FakeClock
from tests.unit.proxy.test_record import live


class Kind(IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


def event(kind: Kind, at: float) -> SimpleNamespace:
    return SimpleNamespace(type=kind, timestamp=at)


def core_step(at: float, tokens: int, *events: SimpleNamespace) -> SimpleNamespace:
    output = SimpleNamespace(request_id="r-in", new_token_ids=[7] * tokens, events=list(events))
    details = SimpleNamespace(
        is_dummy=False, elapsed_ms=20.0, num_ctx_requests=1, num_ctx_tokens=5,
        num_generation_requests=0, num_generation_tokens=0,
    )  # fmt: skip
    stats = SimpleNamespace(
        num_running_reqs=1, num_waiting_reqs=2, kv_cache_usage=0.5, iteration_details=details
    )
    return SimpleNamespace(
        outputs=[output], timestamp=at, scheduler_stats=stats, engine_index=0
    )


class ScriptedEngine:
    """Shaped as `AsyncLLM`: the request registers, the core's steps come, the answer ends."""

    def __init__(self, steps: list[SimpleNamespace], metrics: object = None) -> None:
        self.steps = steps
        self.metrics = metrics
        self.closed = 0
        self.output_processor = SimpleNamespace(request_states={}, add_request=self._add)
        self.engine_core = SimpleNamespace(get_output_async=self._next)

    def _add(self, request, prompt, parent, index, queue) -> None:
        self.output_processor.request_states[request.request_id] = object()

    async def _next(self) -> SimpleNamespace:
        return self.steps.pop(0)

    async def generate(self, prompt, sampling_params, request_id):
        request = SimpleNamespace(
            request_id="r-in", external_req_id=request_id, prompt_token_ids=[1, 2, 3]
        )
        self.output_processor.add_request(request, "p", None, 0, None)
        try:
            while self.steps:
                await self.engine_core.get_output_async()
                yield SimpleNamespace(finished=False, outputs=[], num_cached_tokens=2)
            choice = SimpleNamespace(index=0, finish_reason="stop")
            yield SimpleNamespace(
                finished=True, outputs=[choice], num_cached_tokens=2, metrics=self.metrics
            )
        finally:
            self.closed += 1

    async def encode(self, prompt, pooling_params, request_id):
        yield None


STEPS = [
    core_step(1.5, 1, event(Kind.QUEUED, 1.0), event(Kind.SCHEDULED, 1.2)),
    core_step(1.6, 1),
    core_step(2.0, 1, event(Kind.PREEMPTED, 1.7), event(Kind.SCHEDULED, 1.9)),
]


async def ask(engine: ScriptedEngine, **parameters: object):
    request = live(done_mono_ns=3_000_000_000)
    token = CURRENT.set(request)
    try:
        params = SimpleNamespace(n=1, max_tokens=9, **parameters)
        seen = [o async for o in engine.generate("p", params, "r")]
    finally:
        CURRENT.reset(token)
    return request, seen


async def test_a_call_gets_the_cores_own_stamps_and_the_step_is_reported():
    """Queued, scheduled, tokens, preemption, cached tokens, finish reason, one row a step."""
    engine, steps = ScriptedEngine(list(STEPS)), []
    tap = EngineTap(FakeClock(), steps.append, model="m")
    tap.attach(engine)
    request, seen = await ask(engine)
    [call] = request.calls
    stages = stages_of(call)
    assert [(i.start_ns, i.end_ns) for i in stages.intervals()] == [
        (1_000_000_000, 1_200_000_000), (1_200_000_000, 1_500_000_000),
        (1_500_000_000, 2_000_000_000),
    ]  # fmt: skip
    assert stages.preempted_ns == 200_000_000
    assert call.prompt == [1, 2, 3]  # for its marks
    assert (call.output_tokens, call.input_tokens, call.cached_tokens) == (3, 3, 2)
    assert (call.finish_reason, call.finished, call.model) == ("stop", True, "m")
    assert len(seen) == 4
    assert len(steps) == 3
    assert steps[0].attributes["stagelens.step.duration_ns"] == 20_000_000
    assert tap.load() == EngineLoad(1, 2)
    engine.output_processor.request_states.clear()
    assert tap.load() == EngineLoad(0, 0)
    assert engine.closed == 1
    assert tap._bound == {}


async def test_without_a_request_the_engine_is_left_alone():
    """vLLM's own warm-up calls make no record."""
    engine = ScriptedEngine(list(STEPS))
    EngineTap(FakeClock(), lambda _: None).attach(engine)
    assert len([o async for o in engine.generate("p", None, "warm-up")]) == 4


async def test_an_engine_whose_inner_places_moved_still_serves_with_one_warning(caplog):
    """Without the core's outputs the answer's own stamps are used, and said to be."""
    metrics = SimpleNamespace(
        queued_ts=1.0, scheduled_ts=1.2, first_token_ts=1.5, last_token_ts=2.0,
        num_generation_tokens=3,
    )  # fmt: skip
    engine = ScriptedEngine([], metrics)
    engine.engine_core = SimpleNamespace()
    with caplog.at_level(logging.WARNING):
        EngineTap(FakeClock(), lambda _: None).attach(engine)
    assert [r.message for r in caplog.records if "get_output_async" in r.message]
    assert len(caplog.records) == 1
    request, _ = await ask(engine)
    stages = stages_of(request.calls[0])
    assert [i.end_ns - i.start_ns for i in stages.intervals()] == [
        200_000_000, 300_000_000, 500_000_000,
    ]  # fmt: skip
    assert stages.repairs == ("core_not_heard:stamps_of_the_answer_used",)


async def test_a_fault_in_the_tap_never_reaches_the_engine(caplog):
    """Outputs of an unknown form are counted and logged; the answer goes on."""
    engine = ScriptedEngine([SimpleNamespace(timestamp="odd")] * 3)
    tap = EngineTap(FakeClock(), lambda _: None)
    tap.attach(engine)
    _, seen = await ask(engine)
    assert len(seen) == 4
    assert tap.failures == 3
    assert len(caplog.records) == 1


async def test_leaving_early_closes_the_engines_generator():
    """A consumer that stops ends the inner generator once, and the call is not finished."""
    engine = ScriptedEngine(list(STEPS))
    EngineTap(FakeClock(), lambda _: None).attach(engine)
    request = live()
    token = CURRENT.set(request)
    outputs = engine.generate("p", SimpleNamespace(n=1, max_tokens=9), "r")
    async for _ in outputs:
        break
    await outputs.aclose()
    CURRENT.reset(token)
    await asyncio.sleep(0)
    assert engine.closed == 1
    assert request.calls[0].finished is False
    assert request.calls[0].ended_mono_ns is not None


@pytest.mark.parametrize(
    ("outputs", "finished", "failures"),
    [(SimpleNamespace(data=[0.1]), True, 0), ([SimpleNamespace(finish_reason="stop")], True, 1)],
    ids=["an embedding: no list of choices", "a choice without its index"],
)
async def test_an_answer_of_another_form_passes_whole(outputs, finished, failures, caplog):
    """What cannot be read costs its facts and no answer; an embedding is no fault at all."""
    engine = ScriptedEngine([])
    given = SimpleNamespace(finished=finished, outputs=outputs, metrics=None)

    async def encode(prompt, params, request_id):
        yield given

    engine.encode = encode
    tap = EngineTap(FakeClock(), lambda _: None)
    tap.attach(engine)
    request = live()
    token = CURRENT.set(request)
    seen = [o async for o in engine.encode("p", None, "r")]
    CURRENT.reset(token)
    assert seen == [given]
    assert tap.failures == failures
    assert request.calls[0].finished is True


async def test_params_of_another_form_cost_the_record_its_call_and_no_answer(caplog):
    """A count that is none: the engine answers, the fault is counted."""
    engine = ScriptedEngine(list(STEPS))
    tap = EngineTap(FakeClock(), lambda _: None)
    tap.attach(engine)
    request = live()
    token = CURRENT.set(request)
    seen = [o async for o in engine.generate("p", SimpleNamespace(n="many", max_tokens=9), "r")]
    CURRENT.reset(token)
    assert len(seen) == 4
    assert request.calls == []
    assert tap.failures == 1
