"""The examples run as a user runs them, against a scripted model and a collector's stand-in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.fake_llm.dialects import chat, whole, whole_tools
from tests.fake_llm.server import FakeLlm, fake_llm
from tests.support.otlp_peer import OtlpPeer, otlp_peer
from tests.support.programs import free_port
from tracer import semconv

ROOT = Path(__file__).parents[2]


@pytest.fixture
def peer() -> Iterator[OtlpPeer]:
    with otlp_peer() as one:
        yield one


def environment(peer: OtlpPeer, llm: FakeLlm | None = None) -> dict[str, str]:
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": peer.url, "PYTHONPATH": str(ROOT)}
    if llm is not None:
        told["OPENAI_BASE_URL"] = llm.url + "/v1"
    return {**os.environ, **told}


async def run(program: str, peer: OtlpPeer, llm: FakeLlm, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / "sdk" / program), *words,
        env=environment(peer, llm), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


def tree(peer: OtlpPeer) -> dict[str, str]:
    """Each span's parent, by names; "" for none that is known."""
    names = {s.span_id: s.name for s in peer.spans()}
    return {s.name: names.get(s.parent_span_id, "") for s in peer.spans()}


def told_by(peer: OtlpPeer, name: str) -> dict[str, object]:
    """The attributes of the one span that is ours; a framework's own may have the same name."""
    named = [s for s in peer.spans() if s.name == name]
    [span] = [s for s in named if any(a.key.startswith("stagelens.") for a in s.attributes)]
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def adds_up(told: dict[str, object]) -> bool:
    stages = [n for k, n in told.items() if k.startswith("stagelens.stage.") and k.endswith("_ns")]
    return sum(stages) == told[semconv.E2E_NS]  # type: ignore[arg-type]


async def test_the_plain_script_is_one_trace_with_its_stages(peer):
    """Retrieval, prompt and the model's stream; the request it made carried the trace."""
    async with fake_llm(lambda _: chat(tokens=3, ttft_s=0.1, itl_s=0.02)) as llm:
        assert await run("script.py", peer, llm, "returns?") == "t0 t1 t2 \n"
        parent = llm.requests[0].header("traceparent")
    assert tree(peer) == {
        "answer": "", "retrieval handbook": "answer", "prompt": "answer", "chat m": "answer",
    }  # fmt: skip
    told = told_by(peer, "answer")
    assert adds_up(told)
    assert told[semconv.FIRST_TOKEN_NS] >= 90_000_000  # type: ignore[operator]
    [call] = [s for s in peer.spans() if s.name == "chat m"]
    assert parent == f"00-{call.trace_id.hex()}-{call.span_id.hex()}-01"


async def test_the_agent_runs_its_tools_side_by_side_in_one_trace(peer):
    """Two tools in one round, 0.05 and 0.1 s: the stage is the longer, its count two."""
    asked = whole_tools(("order_status", '{"order": "A1"}'), ("weather", '{"city": "Rome"}'))
    replies = [asked, whole({"role": "assistant", "content": "all well"})]
    async with fake_llm(lambda _: replies.pop(0)) as llm:
        assert await run("agent.py", peer, llm, "where?") == "all well\n"
    found = tree(peer)
    assert found["invoke_agent helper"] == "conversation"
    assert found["execute_tool weather"] == found["execute_tool order_status"] == "invoke_agent helper"
    told = told_by(peer, "conversation")
    assert adds_up(told)
    assert told["stagelens.stage.tool_count"] == 2
    assert 100_000_000 <= told["stagelens.stage.tool_ns"] < 150_000_000 + SLACK_NS  # type: ignore[operator]
    assert told_by(peer, "outcome")[semconv.OUTCOME_SUCCESS] is True


SLACK_NS = 500_000_000
"""A busy machine may start a thread late."""


async def up(url: str, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await asyncio.to_thread(urllib.request.urlopen, url, timeout=2)
            except OSError:
                assert process.poll() is None, "the server ended"
                await asyncio.sleep(0.1)
            else:
                return


async def test_the_rag_application_has_a_record_a_request_and_its_outcome(peer):
    """Streamed over uvicorn; the feedback comes later in another request."""
    port = free_port()
    async with fake_llm(lambda _: chat(tokens=4, ttft_s=0.1, itl_s=0.02)) as llm:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "examples.sdk.rag_app:app", "--port", str(port)],
            cwd=ROOT, env=environment(peer, llm), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            await up(url + "/health", server)
            async with aiohttp.ClientSession() as client:
                async with client.post(url + "/answer", json={"question": "returns?"}) as answer:
                    text = await answer.text()
                    trace_id = answer.headers["x-stagelens-trace-id"]
                told = {"trace_id": trace_id, "right": True, "reason": "thumbs up"}
                async with client.post(url + "/feedback", json=told) as kept:
                    assert await kept.json() == {"kept": True}
        finally:
            server.terminate()
            await asyncio.to_thread(server.wait, 30)
    parts = [json.loads(line[6:]) for line in text.splitlines() if line]
    assert "".join(parts) == "t0 t1 t2 t3 "
    found = tree(peer)
    for name in ("retrieval pages", "chat m", "prompt"):
        assert found[name].replace("fastapi.endpoint", "POST /answer") == "POST /answer", name
    assert found["embeddings words"] == "retrieval pages"
    record = told_by(peer, "POST /answer")
    assert adds_up(record)
    assert record[semconv.FIRST_TOKEN_NS] >= 120_000_000  # type: ignore[operator]
    assert record["stagelens.stage.retrieval_ns"] >= 20_000_000  # type: ignore[operator]
    [outcome] = [s for s in peer.spans() if s.name == "outcome"]
    assert outcome.trace_id.hex() == trace_id


async def test_gunicorns_workers_each_send_their_own_spans(peer):
    """Two workers after a preload: 30 requests, 30 tasks, no id twice, whoever answered."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind",
         f"127.0.0.1:{port}", "examples.sdk.gunicorn_app:app"],
        cwd=ROOT, env=environment(peer), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/?query"
    try:
        await up(url, server)
        already = 1

        def ask(_: int) -> bytes:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read()

        answers = await asyncio.gather(*(asyncio.to_thread(ask, n) for n in range(30)))
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait, 30)
    assert all(a.startswith(b"a from worker ") for a in answers)
    tasks = [s for s in peer.spans() if s.name == "answer"]
    assert len(tasks) == 30 + already
    assert len({s.trace_id for s in tasks}) == len(tasks)
    assert len({s.span_id for s in peer.spans()}) == len(peer.spans()) == 2 * len(tasks)
