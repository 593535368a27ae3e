"""Stages behind an upstream: what it tells is placed by rule, what it does not is not divided."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from proxy.request.call import ChoiceMarks
from proxy.upstream.call import REPAIR_TOO_LONG, UpstreamCall
from proxy.upstream.dialects import Answer, read_event
from proxy.upstream.usage import ServerTimes, Usage, ms_to_ns, read_headers
from tests.fake_llm.dialects import DONE, content, timed, usage
from tests.fake_llm.server import Pause, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv
from tracer.stages import Stage

CHAT = "/v1/chat/completions"
MS = 1_000_000
LATE_MS = 380
"""What a busy machine may add; below what each wrong attribution would."""


def call(handed: int = 0, **marks: object) -> UpstreamCall:
    return UpstreamCall("chat", handed * MS, span_id=1, **marks)  # type: ignore[arg-type]


async def roots(reply: Reply, **ask: object) -> tuple[dict[str, object], list[object]]:
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={"model": "m", **ask})
        [root] = await proxy.sink.wait_for(1)
        return root, proxy.sink.requests[0]


async def test_vllms_metrics_divide_the_wait_and_its_first_token_time_is_prefill():
    """Queue 100 ms and "time to first token" 200 ms end at the first token at 0.5 s."""
    metrics = {"queue_time_ms": 100.0, "time_to_first_token_ms": 200.0, "generation_time_ms": 100.0}
    reply = timed((0.5, content("a")), (0.6, content("b", "stop")), (0.7, usage(9, 2, metrics=metrics)),
                  (0.7, DONE))  # fmt: skip
    root, spans = await roots(reply, stream=True)
    assert root["stagelens.stage.queue_ns"] == 100 * MS
    assert root["stagelens.stage.prefill_ns"] == 200 * MS
    assert 0 < root["stagelens.stage.decode_ns"] / MS < 100 + LATE_MS
    assert 195 < root["stagelens.stage.unattributed_ns"] / MS < 200 + LATE_MS
    assert root[semconv.SOURCE_DETAIL] == "usage,vllm.metrics"
    assert [s.name for s in spans] == [
        "POST /v1/chat/completions", "prompt", "chat m", "queue", "prefill", "decode", "deliver",
    ]  # fmt: skip


async def test_a_silent_upstreams_wait_is_one_span_that_nobody_divides():
    """The time to the first token is unattributed and its span says that it is not divisible."""
    reply = timed((0.3, content("a")), (0.4, content("b", "stop")), (0.4, DONE))
    root, spans = await roots(reply, stream=True)
    assert 295 < root["stagelens.stage.unattributed_ns"] / MS < 300 + LATE_MS
    assert root["stagelens.stage.prefill_ns"] == root["stagelens.stage.queue_ns"] == 0
    assert semconv.SOURCE_DETAIL not in root
    wait = next(s for s in spans if s.name == "time-to-first-token")
    assert wait.attributes[semconv.DIVISIBLE] is False
    assert 295 < (wait.end_time - wait.start_time) / MS < 300 + LATE_MS


async def test_a_whole_answer_has_no_first_token_time():
    """Not streamed: the clocks are null, the wait lasts to its last byte (faults 14)."""
    body = json.dumps({"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}],
                       "usage": {"prompt_tokens": 9, "completion_tokens": 4}}).encode()  # fmt: skip
    reply = Reply([Pause(0.2), body], content_type="application/json", head_first=False)
    root, spans = await roots(reply)
    assert not {semconv.FIRST_TOKEN_NS, semconv.FIRST_CHUNK_NS, semconv.TPOT_NS} & set(root)
    assert root[semconv.OUTPUT_TOKENS] == 4
    assert [s.name for s in spans][3] == "time-to-response"
    assert 195 < root["stagelens.stage.unattributed_ns"] / MS < 200 + LATE_MS


async def test_a_long_upload_is_prompt_and_not_the_models_time():
    """What was streamed through is handed over with its last byte (faults 26)."""
    async with (
        fake_llm(Reply([content("a", "stop"), DONE])) as fake,
        live_proxy(fake.url, replay_limit_bytes=10) as proxy,
        httpx.AsyncClient() as client,
    ):
        async def slow():
            yield b'{"stream":true,"model":"m","x":"'
            await asyncio.sleep(0.4)
            yield b'"}'

        await client.post(proxy.url + CHAT, content=slow(),
                          headers={"content-type": "application/json"})  # fmt: skip
        [root] = await proxy.sink.wait_for(1)
    assert root["stagelens.stage.prompt_ns"] / MS >= 390
    assert root["stagelens.stage.unattributed_ns"] / MS < LATE_MS
    assert root[semconv.MODEL] == "m"


def test_llamas_timings_tell_evaluated_and_cached_tokens_apart():
    """236 of 237 tokens cached: prefill rate 32.3/s on the one evaluated, not 7,655 (faults 25)."""
    made = call()
    chunk = {"choices": [], "timings": {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.958,
                                        "predicted_n": 35, "predicted_ms": 661.064}}  # fmt: skip
    read_event(json.dumps(chunk).encode(), made.answer)
    times = made.answer.times
    assert (made.input_tokens, made.cached_tokens, made.output_tokens) == (237, 236, 35)
    assert times.prefill_ns == 30_958_000
    assert times.prefill_rate == pytest.approx(32.3, abs=0.05)
    assert times.decode_ms_per_token == pytest.approx(18.888, abs=0.001)
    nothing = ServerTimes()
    nothing.read_llama({"prompt_n": 0, "prompt_ms": 0, "cache_n": 237})
    assert nothing.prefill_rate is None
    assert nothing.decode_ms_per_token is None


def test_times_that_do_not_fit_the_call_are_cut_and_flagged():
    """A server that says more than the call took is believed from the first token backwards."""
    made = call(stream=True)
    made.choices[0] = ChoiceMarks()
    made.choices[0].add(1, 100 * MS)
    made.answer.times = ServerTimes(queue_ns=500 * MS, prefill_ns=80 * MS)
    stages = made.stages()
    assert (stages.prefill.start_ns, stages.prefill.end_ns) == (20 * MS, 100 * MS)
    assert (stages.queue.start_ns, stages.queue.end_ns) == (0, 20 * MS)
    assert stages.repairs == (REPAIR_TOO_LONG,)
    assert stages.undivided is None


def test_a_whole_answers_decode_that_does_not_fit_is_cut_and_flagged():
    """It is not left out in silence: decode is believed first, and nothing is left for the others."""
    made = call(read_mono_ns=100 * MS)
    made.answer.times = ServerTimes(prefill_ns=5 * MS, decode_ns=500 * MS)
    stages = made.stages()
    found = [(i.stage, i.start_ns // MS, i.end_ns // MS) for i in stages.intervals()]
    assert found == [(Stage.PREFILL, 0, 0), (Stage.DECODE, 0, 100)]
    assert stages.repairs == (REPAIR_TOO_LONG,)


def test_a_whole_answers_times_end_at_its_last_byte():
    """Queue, prefill and decode back to back before the answer was read."""
    made = call(read_mono_ns=1000 * MS)
    made.answer.times.read_vllm(
        {"queue_time_ms": 100, "time_to_first_token_ms": 200, "generation_time_ms": 300}
    )
    stages = made.stages()
    found = [(i.stage, i.start_ns // MS, i.end_ns // MS) for i in stages.intervals()]
    assert found == [(Stage.QUEUE, 400, 500), (Stage.PREFILL, 500, 700), (Stage.DECODE, 700, 1000)]


@pytest.mark.parametrize(
    ("headers", "processing_ms", "queue_ms", "said_by"),
    [
        ({"openai-processing-ms": "731"}, 731, None, ("openai-processing-ms",)),
        ({"x-envoy-upstream-service-time": "12"}, 12, None, ("x-envoy-upstream-service-time",)),
        ({"server-timing": 'queue;dur=4.5, app;desc="x";dur=9, prefill;dur=20'}, None, 4.5,
         ("server-timing",)),
        ({"x-queue-time": "7"}, None, 7, ("x-queue-time",)),
        ({"server-timing": "queue;dur=NaN, prefill;dur=-1, x", "openai-processing-ms": "odd"},
         None, None, ()),
    ],
)  # fmt: skip
def test_timing_headers_are_used_and_nonsense_is_not(headers, processing_ms, queue_ms, said_by):
    """Server-Timing, TGI's, Envoy's and OpenAI's header; what is no duration says nothing."""
    times = ServerTimes()
    read_headers(times, headers)
    assert times.processing_ns == (None if processing_ms is None else processing_ms * MS)
    assert times.queue_ns == (None if queue_ms is None else queue_ms * MS)
    assert times.said_by == said_by


@pytest.mark.parametrize(
    "body",
    [
        {"usage": {"queue_time": 0.02, "prompt_time": 0.1, "completion_time": 0.5}},
        {"time_info": {"queue_time": 0.02, "prompt_time": 0.1, "completion_time": 0.5}},
    ],
)
def test_seconds_beside_the_usage_are_stage_times(body):
    """Groq's usage and Cerebras's time_info: queue 20 ms, prefill 100 ms, decode 500 ms."""
    answer = Answer()
    read_event(json.dumps({"choices": [], **body}).encode(), answer)
    times = answer.times
    assert (times.queue_ns, times.prefill_ns, times.decode_ns) == (20 * MS, 100 * MS, 500 * MS)
    assert times.said_by == ("usage.times",)


@pytest.mark.parametrize(
    "odd", [None, True, "5", -1, float("nan"), float("inf"), 1e300, [], 2**80, 10**400]
)
def test_odd_figures_are_no_figures(odd):
    """No count and no duration is made of what cannot be one."""
    used = Usage(input=3)
    used.update({"prompt_tokens": odd, "completion_tokens": odd})
    assert (used.input, used.output) == (3, None)
    assert ms_to_ns(odd) is None


def test_reasoning_is_a_part_of_the_output():
    """Output 1970 of which 956 reasoning: not 2926 (faults 35)."""
    used = Usage()
    used.update({"prompt_tokens": 22118, "completion_tokens": 1970,
                 "completion_tokens_details": {"reasoning_tokens": 956}})  # fmt: skip
    assert (used.input_tokens, used.output, used.reasoning) == (22118, 1970, 956)


async def test_a_whole_answers_delivery_is_what_lies_between_its_last_byte_in_and_out():
    """The upstream's last byte came before the client had it, and not when its end was looked for."""
    body = json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}).encode()
    root, _ = await roots(Reply([body], content_type="application/json", framing="length"))
    assert 0 < root["stagelens.stage.deliver_ns"] < root[semconv.E2E_NS]
