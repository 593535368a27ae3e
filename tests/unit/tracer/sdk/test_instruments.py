"""Instrumentations that others keep are turned on by name, without content, and off again."""

from __future__ import annotations

import pytest

import tracer
from tests.fake_llm.dialects import whole
from tests.fake_llm.server import fake_llm
from tests.support.otlp_peer import otlp_peer
from tests.support.programs import run

PROGRAM = """
import httpx
import openai
tracer.configure("shop", os.environ["AT"], instrument=[os.environ["WHICH"]])
with tracer.trace("task"):
    client = openai.OpenAI(base_url=os.environ["LLM"], api_key="sk-CANARY1", max_retries=0)
    if os.environ["WHICH"] == "openai":
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "CANARY"}])
    else:
        httpx.post(os.environ["LLM"] + "/chat/completions?api_key=CANARY", json={"text": "CANARY"})
"""


@pytest.mark.parametrize(("which", "name"), [("openai", "ChatCompletion"), ("httpx", "POST")])
async def test_an_instrumented_client_makes_spans_in_the_task_without_content(which, name):
    """OpenInference's for openai and OpenTelemetry's for httpx; the next hop gets the trace."""
    import asyncio

    reply = whole({"role": "assistant", "content": "CANARY"})
    with otlp_peer() as peer:
        async with fake_llm(lambda _: reply) as llm:
            await asyncio.to_thread(run, PROGRAM, AT=peer.url, LLM=llm.url + "/v1", WHICH=which)
            heard = llm.requests[0].header("traceparent")
        task, theirs = sorted(peer.spans(), key=lambda s: s.name, reverse=True)
        assert (task.name, theirs.name) == ("task", name)
        assert theirs.parent_span_id == task.span_id
        assert b"CANARY" not in peer.raw()
    if which == "httpx":
        assert heard == f"00-{task.trace_id.hex()}-{theirs.span_id.hex()}-01"


def test_a_name_without_an_instrumentation_is_one_sentence_that_says_what_to_install():
    """Nothing is set up then."""
    with pytest.raises(ValueError, match="pip install openinference-instrumentation-nosuch"):
        tracer.configure(endpoint="http://127.0.0.1:9", instrument=["nosuch"])
    from tracer.sdk.runtime import active

    assert active() is None


def test_setting_up_twice_and_shutting_down_leaves_the_client_as_it_was():
    """No complaint of being instrumented already, and no wrapper left."""
    done = run(
        """
        import httpx
        before = httpx.HTTPTransport.handle_request
        for _ in range(2):
            tracer.configure(endpoint="http://127.0.0.1:9", instrument=["httpx"], flush_s=0.1)
        print(httpx.HTTPTransport.handle_request is before)
        tracer.shutdown()
        print(httpx.HTTPTransport.handle_request is before)
        """
    )
    assert done.stdout.split() == ["False", "True"]
    assert "already" not in done.stderr


def test_retrievals_and_tools_of_others_count_in_the_task_around_them():
    """By the standard's operation names and by OpenInference's kinds."""
    with otlp_peer() as peer:
        run(
            """
            from opentelemetry import trace as otel
            tracer.configure(endpoint=os.environ["AT"])
            other = otel.get_tracer("langchain")
            with tracer.trace("task"):
                for told in ({"openinference.span.kind": "RETRIEVER"}, {"openinference.span.kind": "TOOL"},
                             {"gen_ai.operation.name": "execute_tool"}, {"x": "y"}):
                    with other.start_as_current_span("theirs", attributes=told):
                        time.sleep(0.05)
            """,
            AT=peer.url,
        )
        [task] = [s for s in peer.spans() if s.name == "task"]
    told = {a.key: a.value.int_value for a in task.attributes}
    assert told["stagelens.stage.tool_count"] == 2
    assert told["stagelens.stage.retrieval_count"] == 1
    assert told["stagelens.stage.tool_ns"] >= 99_000_000
    assert 49_000_000 <= told["stagelens.stage.retrieval_ns"] < told["stagelens.stage.tool_ns"]
