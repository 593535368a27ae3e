"""Answers of models that break off, are odd or hold what UTF-8 cannot; and what clients send."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

from tests.fake_llm.dialects import DONE, ROLE, asks_tools, content, delta, sse, whole, whole_tools
from tests.fake_llm.server import Asked, Reply, Reset, fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import ANSWER, CHAT, USER, ask, bot, chunks, text_of, tool
from tracer import semconv

CALL = {"index": 0, "id": "c0", "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        [ROLE, content("par")],
        [ROLE, content("par"), Reset()],
        [ROLE, content("par"), delta(tool_calls=[CALL])],
        [ROLE, content("par"), delta(tool_calls=[CALL]), Reset()],
    ],
)
async def test_a_stream_that_stops_in_the_middle_is_no_whole_answer(steps: list):
    """The client can tell, the record is of an error, and no tool runs on a call cut short."""
    async with (
        fake_llm(Reply(steps)) as fake,
        live_proxy(fake.url, pipelines=bot(tools=[tool("add")])) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        body, seen = {"model": "bot", "messages": USER, "stream": True}, ""

        async def read() -> None:
            nonlocal seen
            async with client.stream("POST", proxy.url + CHAT, json=body) as answer:
                async for line in answer.aiter_lines():
                    seen += line

        with pytest.raises(httpx.RemoteProtocolError):
            await read()
        [root] = await proxy.sink.wait_for(1)
    assert "par" in seen
    assert "[DONE]" not in seen
    assert root[semconv.STATUS] == "error"
    assert len(fake.requests) == 1


@pytest.mark.parametrize("end", [[delta(finish="stop")], [content("", "stop")], [DONE]])
async def test_a_stream_that_says_its_end_in_either_way_is_whole(end: list):
    """By the reason of its end or by its last event."""
    answer, [root], _, _ = await ask([Reply([ROLE, content("all"), *end])], bot(), stream=True)
    assert text_of(answer) == "all"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert root[semconv.STATUS] == "ok"


ODD = [
    {"choices": None}, {"choices": [7]}, {"choices": [{"delta": None}]}, {"error": None, "choices": []},
    {"choices": [{"delta": {"tool_calls": [{"index": [], "function": 7}, 3]}}]},
    {"choices": [{"delta": {"tool_calls": {}}}]}, {"choices": [], "usage": {"prompt_tokens": "7"}},
    {"choices": [], "prompt_filter_results": []},
]  # fmt: skip


async def test_odd_chunks_do_no_harm():
    """Text around them comes through, and the request ends well."""
    steps = [ROLE, *map(sse, ODD), content("still"), delta(finish="stop"), DONE]
    answer, [root], _, _ = await ask([Reply(steps)], bot(), stream=True)
    assert text_of(answer) == "still"
    assert root[semconv.STATUS] == "ok"


@pytest.mark.parametrize(
    "body",
    [{}, [], {"choices": 7}, {"choices": [7]}, {"choices": [{"message": 7}]}, {"choices": [{}]}],
)
async def test_a_whole_answer_without_a_message_is_an_error_of_the_model(body: object):
    """502 and one sentence."""
    reply = Reply([json.dumps(body).encode()], content_type="application/json", framing="length")
    answer, [root], _, _ = await ask([reply], bot())
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "bad_answer")
    assert root[semconv.STATUS] == "error"


async def test_content_in_parts_goes_on_as_it_came():
    """After a round with text, too."""
    parts = [{"type": "text", "text": "five"}]
    rounds = [whole_tools(("add", '{"a": 2, "b": 3}'), text="Hm."), whole({"content": parts})]
    answer, _, _, _ = await ask(rounds, bot(tools=[tool("add")]))
    assert answer.json()["choices"][0]["message"]["content"] == parts


async def test_half_a_character_passes_both_ways():
    """A client may cut an emoji in two, and so may a model: as without a pipeline."""
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}\n\n'
    said = [{"role": "user", "content": "\ud83d"}]
    sent = json.dumps({"model": "bot", "stream": True, "messages": said})
    async with (
        fake_llm(Reply([ROLE, half, delta(finish="stop"), DONE])) as fake,
        live_proxy(fake.url, pipelines=bot()) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        answer = await client.post(proxy.url + CHAT, content=sent)
    assert answer.status_code == 200
    assert text_of(answer) == "\ud83d"
    assert json.loads(fake.requests[0].body)["messages"][-1]["content"] == "\ud83d"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_came_packed_is_unpacked(stream: bool):
    """Some servers do so though nobody asked for it; the client gets it as it can read it."""
    streamed = [ROLE, content("all"), delta(finish="stop"), DONE]
    steps = streamed if stream else whole({"content": "all"}).steps
    kind = "text/event-stream" if stream else "application/json"
    body = gzip.compress(b"".join(steps))
    packed = Reply([body], content_type=kind, headers=[("Content-Encoding", "gzip")])
    answer, _, _, fake = await ask([packed], bot(), stream=stream)
    assert (text_of(answer) if stream else answer.json()["choices"][0]["message"]["content"]) == "all"
    assert fake.requests[0].header("accept-encoding") == "identity"


async def test_an_answer_in_an_unknown_packing_is_an_error_of_the_model():
    """502, and no bytes of it."""
    packed = Reply([b"xyz"], headers=[("Content-Encoding", "snappy")])
    answer, _, _, _ = await ask([packed], bot(), stream=True)
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "bad_answer")


async def test_a_model_that_is_busy_says_when_to_ask_again():
    """Its status and ``retry-after`` reach the client."""
    said = b'{"error": {"type": "rate_limit", "message": "later"}}'
    busy = Reply([said], status=429, headers=[("Retry-After", "7")],
                 content_type="application/json", framing="length")  # fmt: skip
    answer, _, _, _ = await ask([busy], bot(), stream=True)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


async def test_calls_with_one_id_get_ids_of_their_own():
    """Else a template would give the model one result for both; a huge id stands in no span."""
    calls = [{"index": i, "id": name, "type": "function",
              "function": {"name": "add", "arguments": f'{{"a": {i}, "b": 0}}'}}
             for i, name in enumerate(("same", "same", "x" * 5000))]  # fmt: skip
    first = Reply([ROLE, delta(tool_calls=calls), delta(finish="tool_calls"), DONE])
    _, _, proxy, fake = await ask([first, ANSWER], bot(tools=[tool("add")]), stream=True)
    told = json.loads(fake.requests[1].body)["messages"][-4:]
    ids = [call["id"] for call in told[0]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [(m["tool_call_id"], m["content"]) for m in told[1:]] == list(zip(ids, "012", strict=True))
    assert "x" * 200 not in "".join(s.to_json() for s in proxy.sink.requests[0])


@pytest.mark.parametrize("arguments", ['{"a": NaN, "b": 1}', '{"a": -Infinity, "b": 1}', "9" * 5000])
async def test_arguments_that_are_no_json_to_others_go_no_further(arguments: str):
    """The model is told, and what it wrote does not stand in the next request."""
    answer, _, _, fake = await ask(
        [asks_tools(("add", arguments)), ANSWER], bot(tools=[tool("add")]), stream=True
    )
    assert text_of(answer) == "up it is"
    told = json.loads(fake.requests[1].body)["messages"]
    assert json.loads(told[-1]["content"])["error"]["type"] == "bad_arguments"
    assert told[-2]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_a_clients_system_message_and_the_pipelines_become_one():
    """Templates that take one system message, at the beginning, get one."""
    _, _, _, fake = await ask(
        [ANSWER], bot(), stream=True, messages=[{"role": "system", "content": "Be brief."}, *USER]
    )
    sent = json.loads(fake.requests[0].body)["messages"]
    assert [m["role"] for m in sent] == ["system", "user"]
    assert sent[0]["content"] == "Help. \n\nBe brief."


async def test_a_pipeline_is_found_by_its_name_as_a_model():
    """Its card, where the client may see the list; a plain model's card is the server's own."""

    def script(asked: Asked) -> Reply:
        said = {"data": []} if asked.target == "/v1/models" else {"id": "plain"}
        return Reply([json.dumps(said).encode()], content_type="application/json", framing="length")

    async with (
        fake_llm(script) as fake,
        live_proxy(fake.url, pipelines=bot()) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        found = await client.get(proxy.url + "/v1/models/bot")
        assert (found.status_code, found.json()["id"]) == (200, "bot")
        assert (await client.get(proxy.url + "/v1/models/m")).json() == {"id": "plain"}


async def test_tool_calls_are_shown_from_the_first_round_on():
    """Also where the model says nothing before it."""
    first = Reply([delta(tool_calls=[CALL]), delta(finish="tool_calls"), DONE])
    answer, _, _, _ = await ask([first, ANSWER], bot(tools=[tool("add")], show_tools=True), stream=True)
    assert [c["stagelens"]["tool"] for c in chunks(answer) if "stagelens" in c] == ["add"]
