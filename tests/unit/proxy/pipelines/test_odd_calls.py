"""Calls that models tell badly, cut short or in another type: none runs that was not asked for."""

from __future__ import annotations

import json

import httpx
import pytest

from proxy.pipelines.asked import add_usage, checked, led, query
from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.text import as_text, strict
from tests.fake_llm.dialects import (
    DONE,
    ROLE,
    asks_tools,
    content,
    delta,
    sse,
    tool_call,
    whole,
    whole_tools,
)
from tests.fake_llm.server import Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import (
    ANSWER,
    CHAT,
    USER,
    ask,
    bot,
    chunks,
    in_turn,
    names,
    text_of,
    tool,
)
from tracer import semconv

END = whole({"role": "assistant", "content": "ok"})
PID = bot(tools=[tool("pid")])


def cut_stream(reason: str) -> Reply:
    head = tool_call(0, "c1", "pid", "")[0]
    return Reply([ROLE, content("I will"), head, delta(finish=reason), DONE])


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_call_that_a_limit_cut_short_does_not_run(reason: str):
    """Its arguments are missing, and none at all would be valid; the client is told of the limit."""
    answer, [root], proxy, fake = await ask([cut_stream(reason)], PID, stream=True)
    assert [n for n in names(proxy) if n.startswith("execute_tool")] == []
    assert text_of(answer) == "I will"
    assert chunks(answer)[-1]["choices"][0]["finish_reason"] == reason
    assert len(fake.requests) == 1
    assert root[semconv.STATUS] == "ok"


async def test_a_whole_answer_that_a_limit_cut_short_shows_no_call_of_the_pipeline():
    """The client could not answer it."""
    call = {"id": "c", "type": "function", "function": {"name": "pid", "arguments": ""}}
    reply = whole({"role": "assistant", "content": "I will", "tool_calls": [call]}, finish="length")
    answer, _, proxy, _ = await ask([reply], PID)
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "I will"}
    assert [n for n in names(proxy) if n.startswith("execute_tool")] == []


@pytest.mark.parametrize("stream", [True, False])
async def test_no_tool_runs_for_a_client_that_says_none(stream: bool):
    """``tool_choice: none`` holds for the pipeline's tools too, whatever the model does."""
    asks = asks_tools if stream else whole_tools
    answer, _, proxy, _ = await ask(
        [asks(("pid", "{}"), text="no")], PID, stream=stream, tool_choice="none"
    )
    assert [n for n in names(proxy) if n.startswith("execute_tool")] == []
    choice = (chunks(answer)[-1] if stream else answer.json())["choices"][0]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("given", [["a"], 5, True, "[]"])
async def test_arguments_of_another_kind_are_no_empty_object(given: object):
    """The tool does not run without arguments that the model did give."""
    call = {"id": "c", "type": "function", "function": {"name": "pid", "arguments": given}}
    reply = whole({"role": "assistant", "content": None, "tool_calls": [call]}, finish="tool_calls")
    _, _, _, fake = await ask([reply, END], PID)
    said = json.loads(fake.requests[1].body)["messages"][-1]["content"]
    assert json.loads(said)["error"]["type"] == "bad_arguments"


@pytest.mark.parametrize("text", ["1e999", "-1e400", "NaN", '{"a": [Infinity]}'])
def test_a_number_that_no_other_reader_takes_is_no_json(text: str):
    """It would go on as ``Infinity``."""
    with pytest.raises(ValueError, match=r"."):
        strict(text)
    assert strict("1.5e3") == 1500.0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_result_with_a_number_that_json_has_not_goes_as_null(number: float):
    """Other readers refuse ``NaN``."""
    assert as_text({"x": [number, 1.5]}) == '{"x": [null, 1.5]}'
    assert as_text(number) == "null"


async def test_a_call_whose_name_comes_late_is_the_clients_all_the_same():
    """Its first piece holds the id alone; nothing of it is lost."""
    pieces = [
        {"index": 0, "id": "c1", "type": "function"},
        {"index": 0, "function": {"name": "mine"}},
        {"index": 0, "function": {"arguments": '{"a": 1}'}},
    ]
    reply = Reply([ROLE, *(delta(tool_calls=[p]) for p in pieces), delta(finish="tool_calls"), DONE])
    mine = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    answer, _, _, fake = await ask([reply], PID, stream=True, tools=[mine])
    got = [c["choices"][0]["delta"].get("tool_calls") for c in chunks(answer)]
    assert [call for calls in got if calls for call in calls] == pieces
    assert chunks(answer)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert len(fake.requests) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_clients_custom_tool_passes_through(stream: bool):
    """A type of tool that has no arguments but an input, and one that nobody knows yet."""
    for kind in ("custom", "grammar"):
        call = {"id": "c1", "type": kind, kind: {"name": "code", "input": "print()"}}
        if stream:
            told = delta(tool_calls=[{"index": 0, **call}])
            reply = Reply([ROLE, told, delta(finish="tool_calls"), DONE])
        else:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            reply = whole(message, finish="tool_calls")
        mine = {"type": kind, kind: {"name": "code"}}
        answer, _, _, _ = await ask([reply], PID, stream=stream, tools=[mine])
        if stream:
            got = [c["choices"][0]["delta"].get("tool_calls") for c in chunks(answer)]
            assert [call for calls in got if calls for call in calls] == [{"index": 0, **call}]
        else:
            assert answer.json()["choices"][0]["message"]["tool_calls"] == [call]


async def test_a_custom_call_by_a_pipelines_name_runs_nothing():
    """Its input is no arguments."""
    call = {"id": "c1", "type": "custom", "custom": {"name": "pid", "input": "now"}}
    reply = whole({"role": "assistant", "content": None, "tool_calls": [call]}, finish="tool_calls")
    _, _, _, fake = await ask([reply, END], PID)
    said = json.loads(fake.requests[1].body)["messages"][-1]["content"]
    assert json.loads(said)["error"]["type"] == "bad_arguments"


async def test_a_stream_that_holds_nothing_is_one_all_the_same():
    """The server would fail on an end without a beginning."""
    answer, [root], _, _ = await ask([Reply([DONE])], PID, stream=True)
    assert (answer.status_code, answer.text) == (200, "data: [DONE]\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert root[semconv.STATUS] == "ok"


async def test_what_belongs_to_a_token_is_told_once():
    """A last chunk with text and an end is sent on as two, and its log probabilities with one."""
    probs = {"content": [{"token": "a", "logprob": -1.0}]}
    last = {"index": 0, "delta": {"content": "a"}, "logprobs": probs, "token_ids": [5],
            "finish_reason": "stop", "stop_reason": 7}  # fmt: skip
    empty = {"index": 0, "delta": {}, "logprobs": probs, "finish_reason": "stop"}
    for choice in (last, empty):
        reply = Reply([ROLE, sse({"choices": [choice]}), DONE])
        answer, _, _, _ = await ask([reply], PID, stream=True)
        given = [c["choices"][0] for c in chunks(answer)]
        assert [c["logprobs"] for c in given if c.get("logprobs")] == [probs]
        assert given[-1].get("stop_reason") == choice.get("stop_reason")
        assert [c for c in given if c.get("token_ids")] == [c for c in given if "token_ids" in c]


async def test_half_a_surrogate_pair_in_a_question_reaches_no_search():
    """A search that reads strict JSON would refuse it."""
    asked = [{"role": "user", "content": "\ud800x"}]
    assert query(asked) == "?x"
    assert query([{"role": "user", "content": [{"type": "text", "text": "\ud800x"}]}]) == "?x"


@pytest.mark.parametrize("count", [2, 0, True, "1", 1.5])
async def test_more_or_less_than_one_choice_is_refused(count: object):
    """``true`` is no number."""
    with pytest.raises(PipelineProblem):
        checked({"messages": USER, "n": count})
    assert checked({"messages": USER, "n": 1}) == USER


async def test_a_whole_answer_after_a_stream_goes_on_in_the_stream():
    """Some servers answer one round so and the next one otherwise."""
    last = whole({"role": "assistant", "content": "final"})
    middle = whole_tools(("pid", "{}"), text="then ")
    answer, [root], _, _ = await ask(
        [asks_tools(("pid", "{}"), text="first "), middle, last], PID, stream=True
    )
    assert text_of(answer) == "first \n\nthen \n\nfinal"
    assert chunks(answer)[-1]["choices"][0]["finish_reason"] == "stop"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert root[semconv.STATUS] == "ok"


def test_usage_of_changing_shape_is_added_where_it_can_be():
    """A count that becomes a mapping, or the other way round, breaks no answer."""
    total: dict[str, object] = {}
    add_usage(total, {"a": 1, "b": {"x": 1}, "c": 0.5, "d": True, "e": None})
    add_usage(total, {"a": {"x": 1}, "b": 3, "c": 0.25, "d": "x", "f": {"y": {"z": 2}}})
    add_usage(total, {"a": 2, "b": {"x": 2}, "f": {"y": {"z": 2}}})
    assert total == {"a": 3, "b": {"x": 3}, "c": 0.75, "f": {"y": {"z": 4}}}


async def test_odd_usage_ends_no_request():
    """The same, through the proxy."""
    first = Reply([*tool_call(0, "c", "pid", "{}"), delta(finish="tool_calls"),
                   sse({"choices": [], "usage": {"prompt_tokens": 1, "d": 3}}), DONE])  # fmt: skip
    last = Reply([content("x", "stop"),
                  sse({"choices": [], "usage": {"prompt_tokens": 2, "d": {"a": 1}}}), DONE])  # fmt: skip
    answer, _, _, _ = await ask(
        [first, last], PID, stream=True, stream_options={"include_usage": True}
    )
    assert chunks(answer)[-1]["usage"] == {"prompt_tokens": 3, "d": 3}


async def test_a_tool_that_is_cancelled_with_the_request_is_not_shown_as_done():
    """One call fails the request; the other one never ended."""
    calls = asks_tools(("hang", "{}"), ("fail", "{}"))
    pipeline = bot(tools=[tool("hang"), tool("fail")], on_tool_error="fail", show_tools=True)
    answer, _, _, _ = await ask([calls], pipeline, stream=True)
    shown = [c["stagelens"] for c in chunks(answer) if "stagelens" in c]
    assert shown == [{"tool": "fail", "id": "c1", "status": "ValueError"}]


async def test_half_a_surrogate_pair_in_a_calls_id_stands_in_no_span():
    """The exporter could not tell it; the model's message and its result still have one id."""
    call = {"id": "\udc00x", "type": "function", "function": {"name": "pid", "arguments": "{}"}}
    reply = whole({"role": "assistant", "content": None, "tool_calls": [call]}, finish="tool_calls")
    _, _, proxy, fake = await ask([reply, END], PID)
    [span] = [s for s in proxy.sink.requests[0] if s.name == "execute_tool pid"]
    assert span.attributes[semconv.GEN_AI_TOOL_CALL_ID] == "?x"
    [*_, said, result] = json.loads(fake.requests[1].body)["messages"]
    assert said["tool_calls"][0]["id"] == result["tool_call_id"] == "?x"


def test_a_system_message_of_parts_is_led_by_the_pipelines_words():
    """Templates that take one system message get one."""
    theirs = {"role": "system", "content": [{"type": "text", "text": "theirs"}]}
    [system, user] = led("ours", [theirs, {"role": "user", "content": "q"}])
    assert [part["text"] for part in system["content"]] == ["ours", "theirs"]
    assert user["role"] == "user"


async def test_headers_that_name_one_request_differ_by_round():
    """A server that keeps answers by key would give the first one for ever; sums of the client's
    body are not those of ours.
    """
    given = {"idempotency-key": "k", "x-request-id": "r", "content-md5": "m", "digest": "d"}
    async with (
        fake_llm(in_turn(asks_tools(("pid", "{}")), ANSWER)) as fake,
        live_proxy(fake.url, pipelines=PID) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        body = {"model": "bot", "messages": USER, "stream": True}
        await client.post(proxy.url + CHAT, json=body, headers=given)
        seen = [[asked.header(name) for name in given] for asked in fake.requests]
    assert seen == [["k", "r", None, None], ["k-r2", "r-r2", None, None]]
