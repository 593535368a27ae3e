"""An application with the SDK before the real engine: one trace, and stages that add up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from dashboards.errors import NotStoredError
from dashboards.models.trace import Trace
from tests.e2e.conftest import MODEL, Served

pytestmark = pytest.mark.engine
PROGRAM = """
import os, sys, time
import openai
import tracer

tracer.configure("shop", os.environ["COLLECTOR"])
client = tracer.propagating(openai.OpenAI(base_url=os.environ["PROXY"] + "/v1", api_key="none"))

@tracer.retrieval(data_source="docs")
def search(query, k=2):
    time.sleep(0.05)
    return [{"id": "a", "score": 0.5}, {"id": "b", "score": 0.25}]

@tracer.tool
def lookup(order):
    time.sleep(0.02)
    return "shipped"

@tracer.llm("tiny")
def model(prompt):
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": prompt}], stream=True, max_tokens=8,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )

@tracer.trace("answer")
def answer(question):
    hits = search(question)
    with tracer.stage("prompt"):
        prompt = question + str(hits)
    lookup("A1")
    for chunk in model(prompt):
        yield chunk

with tracer.trace("task"):
    trace_id = tracer.current_trace_id()
    chunks = sum(1 for _ in answer("hello"))
tracer.outcome(trace_id, success=True, score=0.75, reason="looks right")
print(trace_id)
sys.exit(0 if tracer.shutdown() else 1)
"""


def collector_of(served: Served) -> str:
    """The OTLP address: it is in the file that the server wrote when it was ready."""
    [ready] = served.data_dir.parent.glob("ready.json")
    return str(json.loads(ready.read_text())["collector"])


def stored(served: Served, trace_id: str, within_s: float = 40) -> Trace:
    """The trace with both of its records and its outcome: acknowledged comes before stored."""
    give_up = time.monotonic() + within_s
    found: Trace | None = None
    while found is None or len(found.requests) < 2 or all(s.name != "outcome" for s in found.spans):
        assert time.monotonic() < give_up, found
        time.sleep(0.2)
        with contextlib.suppress(NotStoredError):
            found = served.source.trace(trace_id)
    return found


def test_app_proxy_and_engine_are_one_trace_and_each_record_adds_up(served: Served):
    """The task with its own stages, the proxy's request below it, the engine's stages below that."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "COLLECTOR": collector_of(served), "PROXY": served.proxy},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trace = stored(served, done.stdout.strip())
    app, proxied = sorted(trace.requests, key=lambda r: r.start_unix_ns)
    assert (app.source, app.operation, app.status) == ("app", "invoke_workflow", "ok")
    assert (proxied.source, proxied.operation, proxied.model) == ("engine", "chat", MODEL)
    for record in (app, proxied):
        assert sum(s.ns for s in record.stages if not s.part_of) == record.e2e_ns
    names = {s.span_id: s.name for s in trace.spans}
    parents = {s.name: names.get(s.parent_span_id or "", "") for s in trace.spans}
    by_name = {s.name: s for s in trace.spans}
    assert parents["answer"] == "task"
    assert parents["retrieval docs"] == parents["execute_tool lookup"] == "answer"
    chats = [s for s in trace.spans if s.name == f"chat {MODEL}"]
    assert {s.service for s in chats} == {"shop", by_name["POST /v1/chat/completions"].service}
    [ours] = [s for s in chats if s.service == "shop"]
    assert by_name["POST /v1/chat/completions"].parent_span_id == ours.span_id
    assert {"queue", "prefill", "decode"} <= set(names.values())
    assert all(s.depth > 0 for s in trace.spans if s.name not in ("task", "outcome"))
    stages = {s.stage: s.ns for s in app.stages}
    assert stages["retrieval"] >= 50_000_000
    assert stages["tool"] >= 20_000_000
    assert stages["decode"] > 0
    assert proxied.e2e_ns <= ours.duration_ns <= app.e2e_ns
    assert ours.attributes["gen_ai.usage.output_tokens"] == str(proxied.output_tokens) == "8"


def test_an_outcome_is_stored_in_the_tasks_trace_and_is_no_request(served: Served):
    """A third span of the trace's top level that has no record of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "COLLECTOR": collector_of(served), "PROXY": served.proxy},
    )  # fmt: skip
    trace = stored(served, done.stdout.strip())
    [outcome] = [s for s in trace.spans if s.name == "outcome"]
    assert outcome.duration_ns == 0
    assert outcome.attributes == {
        "stagelens.outcome.success": "true", "stagelens.outcome.score": "0.75",
        "stagelens.outcome.reason": "looks right",
    }  # fmt: skip
