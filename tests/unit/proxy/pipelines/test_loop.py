"""A pipeline in front of a scripted model: retrieval, tools, rounds, and the record they leave."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.fake_llm.dialects import asks_tools, chat, content, whole, whole_tools
from tests.fake_llm.server import Asked, Hang, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import (
    ANSWER,
    CHAT,
    USER,
    ask,
    bot,
    chunks,
    leave_after,
    names,
    retriever,
    text_of,
    tool,
)
from tracer import semconv

MS = 1_000_000


async def test_a_streamed_request_retrieves_runs_tools_and_ends_with_the_models_words():
    """Documents go into the system prompt, results back to the model, its text to the client."""
    answer, [root], proxy, fake = await ask(
        [asks_tools(("add", '{"a": 2, "b": 3}'), text="Let me see. "), ANSWER],
        bot(retrievers=[retriever("docs", "find", top_k=2)], tools=[tool("add")]),
        stream=True,
    )
    assert answer.status_code == 200
    assert text_of(answer) == "Let me see. \n\nup it is"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert {c["model"] for c in chunks(answer)} == {"bot"}
    assert [c["choices"][0]["finish_reason"] for c in chunks(answer)][-1] == "stop"
    first, second = (json.loads(asked.body) for asked in fake.requests)
    assert first["model"] == "m"
    assert '{"id": "1", "text": "what is up? 1"}' in first["messages"][0]["content"]
    assert first["tools"][0]["function"]["name"] == "add"
    assert first["tools"][0]["function"]["description"] == "Add two numbers."
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "c0", "content": "5"}
    assert json.loads(second["messages"][-2]["tool_calls"][0]["function"]["arguments"]) == {
        "a": 2, "b": 3
    }  # fmt: skip
    assert root[semconv.MODEL] == "bot"
    assert root[semconv.STATUS] == "ok"
    assert (root[semconv.CHOICES], root[semconv.FINISH_REASON]) == (1, "stop")
    assert sorted(names(proxy)) == sorted([
        "POST /v1/chat/completions", "prompt", "prompt", "prompt", "retrieval docs", "chat m",
        "time-to-first-token", "decode", "execute_tool add", "chat m", "time-to-first-token",
        "decode", "deliver",
    ])  # fmt: skip


async def test_a_whole_answer_sums_the_usage_of_its_rounds_and_hides_their_calls():
    """Without a stream the client gets one document under the pipeline's name."""
    said = whole({"role": "assistant", "content": "five"})
    answer, [root], _, _ = await ask(
        [whole_tools(("add", '{"a": 2, "b": 3}')), said], bot(tools=[tool("add")])
    )
    body = answer.json()
    assert body["choices"][0]["message"]["content"] == "five"
    assert body["model"] == "bot"
    assert body["usage"]["total_tokens"] == 28
    assert root["stagelens.tokens.output"] == 8
    assert root["stagelens.stage.tool_count"] == 1


async def test_stage_times_are_the_scripted_delays_and_add_up():
    """A retrieval of 200 ms and two parallel tools of 300 and 100 ms: 200 and 300 ms, not 400."""
    calls = asks_tools(("wait", '{"seconds": 0.3}'), ("wait", '{"seconds": 0.1}'))
    _, [root], proxy, _ = await ask(
        [calls, ANSWER],
        bot(retrievers=[retriever("docs", "find_slowly")], tools=[tool("wait")]),
        stream=True,
    )
    times = {k: v for k, v in root.items() if k.startswith("stagelens.stage.") and "_ns" in k}
    assert sum(times.values()) == root[semconv.E2E_NS]  # type: ignore[arg-type]
    spans = {}
    for span in proxy.sink.requests[0]:
        spans.setdefault(span.name, []).append((span.start_time, span.end_time))
    [docs] = spans["retrieval docs"]
    assert times["stagelens.stage.retrieval_ns"] == docs[1] - docs[0] >= 200 * MS
    long, short = sorted(spans["execute_tool wait"], key=lambda s: s[0] - s[1])
    assert times["stagelens.stage.tool_ns"] >= long[1] - long[0] >= 300 * MS
    assert short[0] < long[1]
    assert short[1] > long[0]
    assert times["stagelens.stage.tool_ns"] < (long[1] - long[0]) + (short[1] - short[0])


async def test_traceparent_goes_to_the_search_and_its_answer_is_mapped():
    """The search is told the retrieval's own span; documents are read at the settings' paths."""
    found = {"hits": [{"body": {"t": "blue"}, "n": 7}, {"body": {"t": "red"}, "n": 8}]}
    search = Reply([json.dumps(found).encode()], content_type="application/json", framing="length")
    async with fake_llm(search) as engine:
        source = {"kind": "http", "name": "web", "url": engine.url + "/q", "top_k": 1,
                  "documents_path": "$.hits", "text_path": "body.t", "id_path": "n"}  # fmt: skip
        _, [root], proxy, fake = await ask([ANSWER], bot(retrievers=[source]), stream=True)
        [asked] = engine.requests
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval web")
    assert asked.header("traceparent") == (
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
    )
    assert json.loads(asked.body) == {"query": "what is up?", "top_k": 1}
    system = json.loads(fake.requests[0].body)["messages"][0]["content"]
    assert system == 'Help. {"id": "7", "text": "blue"}'
    assert span.attributes[semconv.GEN_AI_DATA_SOURCE_ID] == "web"
    assert root["stagelens.stage.retrieval_count"] == 1


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("hang", "{}", "timeout"),
        ("hang_in_thread", "{}", "timeout"),
        ("fail", "{}", "ValueError"),
        ("much", "{}", "result_too_large"),
        ("add", "{", "bad_arguments"),
        ("add", '{"a": "x", "b": 1}', "bad_arguments"),
        ("rm", "{}", "unknown_tool"),
    ],
)
async def test_what_goes_wrong_in_a_tool_is_told_to_the_model_and_stands_in_its_span(
    name: str, arguments: str, kind: str
):
    """The request goes on; the model gets the kind of the fault and no exception's text."""
    given = [tool(n, timeout_s=0.3) for n in ("hang", "hang_in_thread", "fail", "much", "add")]
    answer, [root], proxy, fake = await ask(
        [asks_tools((name, arguments)), ANSWER], bot(tools=given), stream=True
    )
    assert text_of(answer) == "up it is"
    told = json.loads(fake.requests[1].body)["messages"][-1]["content"]
    assert json.loads(told)["error"]["type"] == kind
    assert "1234" not in told
    span = next(s for s in proxy.sink.requests[0] if s.name.startswith("execute_tool"))
    assert span.attributes[semconv.ERROR_TYPE] == kind
    assert root[semconv.STATUS] == "ok"


async def test_a_tool_fault_fails_the_request_where_the_settings_say_so():
    """``on_tool_error: fail`` ends the stream with one error event and an error record."""
    answer, [root], _, fake = await ask(
        [asks_tools(("fail", "{}"), text="Hm. ")],
        bot(tools=[tool("fail")], on_tool_error="fail"), stream=True,
    )  # fmt: skip
    assert chunks(answer)[-1]["error"]["type"] == "tool_failed"
    assert "[DONE]" not in answer.text
    assert root[semconv.STATUS] == "error"
    assert len(fake.requests) == 1


async def test_a_model_that_asks_for_ever_is_stopped_at_the_limit():
    """After ``max_rounds`` calls the client is told so, and there is one finished record."""
    again = [whole_tools(("add", '{"a": 1, "b": 1}')) for _ in range(3)]
    answer, [root], _, fake = await ask(again, bot(tools=[tool("add")], max_rounds=3))
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "rounds_limit"
    assert root[semconv.ERROR_TYPE] == "rounds_limit"
    assert len(fake.requests) == 3


@pytest.mark.parametrize(("on_error", "status"), [("fail", 502), ("skip", 200)])
async def test_a_search_that_is_down_fails_the_request_or_is_skipped_and_said(
    on_error: str, status: int
):
    """Failing names the retrieval; skipping is said in a header, and both in the span."""
    down = {"kind": "http", "name": "web", "url": "http://127.0.0.1:9/q", "on_error": on_error}
    answer, [root], proxy, _ = await ask([ANSWER], bot(retrievers=[down]), stream=True)
    assert answer.status_code == status
    assert answer.headers.get("x-stagelens-skipped") == ("web" if on_error == "skip" else None)
    assert root[semconv.STATUS] == ("error" if on_error == "fail" else "ok")
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval web")
    assert span.attributes[semconv.ERROR_TYPE] == "connection"


async def test_a_clients_own_tool_passes_through_untouched():
    """Its call streams to the client as the model made it, and the round ends the answer."""
    theirs = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    answer, _, _, fake = await ask(
        [asks_tools(("mine", '{"q": 1}'))], bot(tools=[tool("add")]), stream=True, tools=[theirs]
    )
    deltas = [c["choices"][0]["delta"].get("tool_calls") for c in chunks(answer)]
    calls = [one for part in deltas if part for one in part]
    assert calls[0]["function"]["name"] == "mine"
    assert "".join(c["function"]["arguments"] for c in calls) == '{"q": 1}'
    assert chunks(answer)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    sent = json.loads(fake.requests[0].body)["tools"]
    assert sent[0] == theirs
    assert len(sent) == 2


async def test_a_client_that_leaves_cancels_the_running_tool_and_leaves_one_record():
    """The record is of a cancelled request and holds the tool's span; no task stays behind."""
    async with (
        fake_llm(asks_tools(("hang", "{}"), text="wait")) as fake,
        live_proxy(fake.url, pipelines=bot(tools=[tool("hang")])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        await leave_after("wait", client, proxy, linger_s=0.1)
        [root] = await proxy.sink.wait_for(1)
        names_left = {t.get_coro().__qualname__ for t in asyncio.all_tasks()}
    assert root[semconv.STATUS] == "cancelled"
    span = next(s for s in proxy.sink.requests[0] if s.name == "execute_tool hang")
    assert span.attributes[semconv.ERROR_TYPE] == "cancelled"
    assert not any("Loop" in name for name in names_left)


async def test_plain_models_stand_beside_pipelines():
    """The list has both, and a plain model's request goes through as it came."""
    listed = json.dumps({"object": "list", "data": [{"id": "m"}]}).encode()
    models = Reply([listed], content_type="application/json", framing="length")

    def script(asked: Asked) -> Reply:
        return models if asked.target == "/v1/models" else chat(2)

    async with (
        fake_llm(script) as fake,
        live_proxy(fake.url, pipelines=bot()) as proxy,
        httpx.AsyncClient() as client,
    ):
        got = (await client.get(proxy.url + "/v1/models")).json()
        assert [m["id"] for m in got["data"]] == ["m", "bot"]
        sent = b'{"model": "m",  "messages": [], "stream": true}'
        await client.post(proxy.url + CHAT, content=sent)
        assert fake.requests[-1].body == sent


async def test_a_models_error_goes_on_and_a_hanging_model_ends_with_the_client():
    """The model's own error keeps its status and type."""
    error = json.dumps({"error": {"message": "too long", "type": "bad_length"}}).encode()
    refused = Reply([error], status=400, reason="Bad", content_type="application/json",
                    framing="length")  # fmt: skip
    answer, [root], _, _ = await ask([refused], bot(), stream=True)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "bad_length")
    assert root[semconv.ERROR_TYPE] == "bad_length"
    async with (
        fake_llm(Reply([content("a"), Hang()])) as fake,
        live_proxy(fake.url, pipelines=bot()) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        body = {"model": "bot", "messages": USER, "stream": True}
        async with client.stream("POST", proxy.url + CHAT, json=body) as stream:
            await anext(stream.aiter_lines())
        [root] = await proxy.sink.wait_for(1)
        await asyncio.wait_for(fake.left.wait(), 10)
    assert root[semconv.STATUS] == "cancelled"
