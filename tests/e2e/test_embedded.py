"""The embedded engine, the real store and real clients: the times are true and add up."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time

import openai
import pytest

from tests.e2e.conftest import MODEL, Served
from tests.support import raw_client, stat_plugin

pytestmark = pytest.mark.engine
PATH = "/v1/chat/completions"
STAGES = ("prompt", "retrieval", "queue", "prefill", "decode", "tool", "deliver", "unattributed")


def chat(words: int = 5, **more: object) -> dict[str, object]:
    content = " ".join(["word"] * words)
    return {
        "model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8,
        "ignore_eos": True, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run_of_200(served: Served) -> tuple[list[raw_client.Seen], dict[str, object]]:
    """200 requests at concurrency 8, and their stored records by trace id."""
    rng = random.Random(3)

    async def load() -> list[raw_client.Seen]:
        gate = asyncio.Semaphore(8)

        async def one() -> raw_client.Seen:
            async with gate:
                body = chat(rng.randint(2, 60), max_tokens=rng.randint(2, 24), stream=True)
                return await raw_client.post(
                    served.port, PATH, body, x_stagelens_tags="run=200"
                )

        return list(await asyncio.gather(*(one() for _ in range(200))))

    seen = asyncio.run(load())
    records = served.stored(200, run="200")
    return seen, {r.trace_id: r for r in records}


def test_every_request_of_the_run_is_stored_once(run_of_200):
    """200 sent, 200 stored, each under the trace id its answer named."""
    seen, records = run_of_200
    assert len(records) == 200
    assert {s.trace_id for s in seen} == set(records)
    assert {s.status for s in seen} == {200}


def test_stages_sum_to_e2e_exactly_and_leave_nothing_unattributed(run_of_200, served):
    """To the nanosecond for each request; unattributed is at most 2 ms or 1 % at p99."""
    seen, _ = run_of_200
    shares = []
    for one in seen:
        record = served.source.trace(one.trace_id).requests[0]
        assert sum(s.ns for s in record.stages if not s.part_of) == record.e2e_ns
        rest = next(s.ns for s in record.stages if s.stage == "unattributed")
        shares.append((rest <= 2_000_000) or rest <= record.e2e_ns / 100)
    assert sum(shares) >= 198


def test_queue_prefill_and_decode_equal_vllms_own_statistics(run_of_200, served):
    """Within 1 ms of FinishedRequestStats for the same request, by a real vLLM plugin."""
    seen, _ = run_of_200
    theirs = stat_plugin.read(served.stats_file)
    worst = 0.0
    for one in seen:
        record = served.source.trace(one.trace_id).requests[0]
        own = theirs[_engine_id(one, theirs)]
        assert own["output"] == record.output_tokens
        assert own["input"] == record.input_tokens
        for stage in ("queue", "prefill", "decode"):
            ours = next(s.ns for s in record.stages if s.stage == stage)
            worst = max(worst, abs(ours / 1e9 - own[stage]))
    assert worst <= 0.001


def _engine_id(one: raw_client.Seen, theirs: dict[str, dict[str, float]]) -> str:
    """The engine's request id is the `id` of the answer's chunks."""
    first = one.body.split(b"data: ", 1)[1].split(b"\n", 1)[0]
    return str(json.loads(first)["id"])


def test_first_token_follows_prefill_and_tpot_follows_decode(run_of_200):
    """The figures of one record agree with each other."""
    _, records = run_of_200
    for record in records.values():
        assert record.ttft_ns is not None
        assert 0 < record.ttft_ns <= record.e2e_ns


def test_the_official_client_streams_and_gets_what_vllm_gives(served):
    """Streamed and not, n>1, completions, logprobs, tokenise: vLLM's own answers."""
    with openai.OpenAI(base_url=f"{served.proxy}/v1", api_key="x", max_retries=0) as client:
        assert [m.id for m in client.models.list().data] == [MODEL]
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        extra = {"extra_body": {"ignore_eos": True}}
        plain = client.chat.completions.create(**ask, max_tokens=5, n=2, **extra)
        assert len(plain.choices) == 2
        assert plain.usage.completion_tokens == 10
        chunks = list(
            client.chat.completions.create(
                **ask, max_tokens=5, stream=True, stream_options={"include_usage": True}, **extra
            )
        )
        assert chunks[-1].usage.completion_tokens == 5
        text = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=3, **extra)
        assert len(text.choices) == 2
    seen = asyncio.run(raw_client.post(served.port, "/tokenize", {"model": MODEL, "prompt": "hi"}))
    assert json.loads(seen.body[seen.body.index(b"{") :].split(b"}")[0] + b"}")["count"] >= 1


def test_structured_output_and_tools_are_vllms(served):
    """A JSON schema constrains the answer; a bad tool request gets vLLM's own error."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    with openai.OpenAI(base_url=f"{served.proxy}/v1", api_key="x", max_retries=0) as client:
        made = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], max_tokens=200,
            extra_body={"structured_outputs": {"choice": ["yes", "no"]}},
        )  # fmt: skip
        assert made.choices[0].message.content in ("yes", "no")
        assert schema["type"] == "object"
        with pytest.raises(openai.BadRequestError, match="tool"):
            client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "x"}], tool_choice="auto",
                tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
            )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "error_type"),
    [
        ({"model": "nope"}, 404, "NotFoundError"),
        ({"max_tokens": 100_000}, 400, "BadRequestError"),
        ({"temperature": -1}, 400, "BadRequestError"),
    ],
)
def test_an_invalid_request_gets_vllms_error_and_a_record(served, body, status, error_type):
    """vLLM's status and body; one error record with prompt and deliver alone."""
    seen = asyncio.run(raw_client.post(served.port, PATH, {**chat(), **body}))
    assert seen.status == status
    assert error_type.encode() in seen.body
    record = wait_trace(served, seen.trace_id).requests[0]
    assert (record.status, record.error_type) == ("error", error_type)
    assert {s.stage for s in record.stages if s.count and not s.part_of} == {"prompt", "deliver"}


def wait_trace(served: Served, trace_id: str):
    """The trace, once it is stored."""
    from dashboards.errors import NotStoredError

    give_up = time.monotonic() + 15
    while True:
        try:
            return served.source.trace(trace_id)
        except NotStoredError:
            assert time.monotonic() < give_up, f"trace {trace_id} never came"
            time.sleep(0.2)


def test_one_token_zero_tpot_and_no_ttft_where_nothing_streams(served):
    """max_tokens 1 has no TPOT; an answer that is not streamed has no TTFT (faults 14, 17)."""
    seen = asyncio.run(raw_client.post(served.port, PATH, chat(max_tokens=1)))
    record = wait_trace(served, seen.trace_id).requests[0]
    assert record.output_tokens == 1
    assert record.tpot_ns is None
    assert record.ttft_ns is None
    assert record.finish_reason == "length"


def test_a_repeated_prefix_is_counted_as_cached(served):
    """The second of two equal long prompts says how many tokens came from the cache."""
    body = chat(words=100)
    asyncio.run(raw_client.post(served.port, PATH, body))
    seen = asyncio.run(raw_client.post(served.port, PATH, body))
    record = wait_trace(served, seen.trace_id).requests[0]
    assert record.cached_tokens > 0
    assert record.cached_tokens <= record.input_tokens


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_aborts_the_engine_and_leaves_one_cancelled_record(served, stream):
    """Within a second of the disconnect the engine is idle and the record says cancelled."""
    tag = f"leaver-{stream}"

    async def leave() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        body = json.dumps(chat(max_tokens=900, stream=stream)).encode()
        writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"x-stagelens-tags: run={tag}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        if stream:
            await reader.readuntil(b"data: ")
        else:
            await asyncio.sleep(0.4)
        writer.close()

    asyncio.run(leave())
    [record] = served.stored(1, run=tag)
    assert record.status == "cancelled"
    assert record.error_type == "client_disconnect"
    assert record.e2e_ns < 3e9
    metrics = asyncio.run(get_metrics(served))
    assert "vllm:num_requests_running{" in metrics
    running = [line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running{")]
    assert all(line.endswith(" 0.0") for line in running)


async def get_metrics(served: Served) -> str:
    """vLLM's own /metrics, once the engine reports itself idle."""
    import httpx

    async with httpx.AsyncClient() as client:
        for _ in range(20):
            text = (await client.get(f"{served.proxy}/metrics")).text
            lines = [x for x in text.splitlines() if x.startswith("vllm:num_requests_running{")]
            if all(line.endswith(" 0.0") for line in lines):
                break
            await asyncio.sleep(0.1)
        return text


def test_steps_are_stored_and_every_item_is_accounted_for(run_of_200, served):
    """Engine steps arrive, and received = written + refused + in flight with nothing refused."""
    status = served.source.status()
    assert status.engine_steps > 0
    assert status.collector is not None
    for signal in ("spans", "logs", "metrics"):
        counts = status.collector[signal]
        refused = sum(counts.refused.values())
        assert counts.received == counts.written + refused + counts.in_flight
        assert refused == 0


def test_the_command_line_reports_the_run(run_of_200, served):
    """`stagelens report` and `trace` on the running collector: one JSON document, true n."""
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "report", "--collector", served.api, "--run", "200",
         "--by", "output_tokens,cached", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(made.stdout)
    assert report["overall"]["counts"]["total"] == 200
    assert abs(sum(s["share"] for s in report["overall"]["stages"] if not s["part_of"]) - 1) < 1e-9
    assert sum(g["counts"]["total"] for g in report["groups"]) == 200
    seen, _ = run_of_200
    trace = subprocess.run(
        [sys.executable, "-m", "stagelens", "trace", seen[0].trace_id, "--collector", served.api],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    for stage in ("prompt", "queue", "prefill", "decode", "deliver"):
        assert stage in trace.stdout


def test_the_callers_trace_holds_the_engines_spans(served):
    """traceparent in: the whole tree hangs under the caller's span, in the caller's trace."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen = asyncio.run(raw_client.post(served.port, PATH, chat(), traceparent=parent))
    assert seen.trace_id == parent[3:35]
    trace = wait_trace(served, parent[3:35])
    names = {s.name for s in trace.spans}
    assert {f"POST {PATH}", "prompt", f"chat {MODEL}", "queue", "prefill", "decode", "deliver"} <= names
