"""What of each round reaches the client and the model again: calls without a name, texts, thinking."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.fake_llm.dialects import DONE, ROLE, asks_tools, content, delta, sse, whole, whole_tools
from tests.fake_llm.server import FakeLlm, Reply
from tests.support.pipelines import ANSWER, ask, bot, chunks, text_of, tool

PID = bot(tools=[tool("pid")])
END = whole({"role": "assistant", "content": "up it is"})
NAMELESS: list[object] = [
    {"id": "c1", "type": "function", "function": {"name": "", "arguments": "{}"}},
    {"id": "c1", "type": "function", "function": {"name": None, "arguments": '{"a": 1}'}},
    {"function": {"arguments": "{}"}},
    {"id": "c1"},
]


def round_with(calls: object, stream: bool, text: str = "") -> Reply:
    if stream:
        steps = [ROLE, content(text)] if text else [ROLE]
        choice = {"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}
        return Reply([*steps, sse({"choices": [choice]}), delta(finish="tool_calls"), DONE])
    message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    return whole(message, "tool_calls")


def said(answer: httpx.Response, stream: bool) -> str:
    return text_of(answer) if stream else answer.json()["choices"][0]["message"]["content"]


def kind_of(answer: httpx.Response, stream: bool) -> str:
    body = chunks(answer)[-1] if stream else answer.json()
    return str(body["error"]["type"])  # type: ignore[index]


def sent_back(fake: FakeLlm) -> list[dict[str, object]]:
    return json.loads(fake.requests[1].body)["messages"][2:]  # type: ignore[no-any-return]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("call", NAMELESS)
@pytest.mark.parametrize("around", [[], [None, 5]])
async def test_a_call_without_a_name_is_told_as_unknown_tool(
    call: object, around: list[object], stream: bool
):
    """It goes back under a name that providers take; noise beside it does no harm."""
    replies = [round_with([*around, call], stream), ANSWER if stream else END]
    answer, _, _, fake = await ask(replies, PID, stream=stream)
    assert said(answer, stream) == "up it is"
    asked, told = sent_back(fake)
    assert asked["tool_calls"][0]["function"]["name"] == "_unknown"  # type: ignore[index]
    assert json.loads(str(told["content"]))["error"]["type"] == "unknown_tool"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("calls", [[None, 5, {"function": None}], [{}], [None], 7, "pid"])
async def test_calls_in_no_known_form_alone_are_a_bad_answer(calls: object, stream: bool):
    """The same in both forms: never an empty answer, nor the broken calls."""
    answer, _, _, _ = await ask([round_with(calls, stream)], PID, stream=stream)
    assert kind_of(answer, stream) == "bad_answer"


@pytest.mark.parametrize("stream", [True, False])
async def test_beside_a_text_they_are_left_out(stream: bool):
    """The text is the answer."""
    answer, _, _, _ = await ask([round_with([None, 5, {"index": 0}], stream, "hello")], PID, stream=stream)
    assert said(answer, stream) == "hello"
    assert "tool_calls" not in answer.text.replace('"finish_reason": "tool_calls"', "")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_invented_name_goes_back_as_providers_take_names(stream: bool):
    """They refuse a request with other characters or a longer one."""
    call = {"id": "c1", "type": "function", "function": {"name": "get weather!" * 9, "arguments": "{}"}}
    replies = [round_with([call], stream), ANSWER if stream else END]
    _, _, _, fake = await ask(replies, PID, stream=stream)
    name = sent_back(fake)[0]["tool_calls"][0]["function"]["name"]  # type: ignore[index]
    assert name == ("get_weather_" * 9)[:64]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("texts", "whole_text"),
    [(("let me see", "wait", ""), "let me see\n\nwait\n\nup it is"), (("", "", ""), "up it is"),
     (("let me see", "", " "), "let me see\n\n \n\nup it is"), (("\n",), "\nup it is")],
)  # fmt: skip
async def test_a_blank_line_stands_between_the_texts_of_rounds(
    texts: tuple[str, ...], whole_text: str, stream: bool
):
    """The same in a stream and in one document; a round that says nothing makes none."""
    make = asks_tools if stream else whole_tools
    rounds = [make(("pid", "{}"), text=text) for text in texts]
    answer, _, _, fake = await ask([*rounds, ANSWER if stream else END], PID, stream=stream)
    assert said(answer, stream) == whole_text
    assert sent_back(fake)[0]["content"] == (texts[0] or None)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_the_models_thinking_goes_back_with_its_calls(name: str, stream: bool):
    """And the client sees the last round's, as it came."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "pid", "arguments": "{}"}}
    if stream:
        first, last = (
            Reply([ROLE, *(sse({"choices": [{"index": 0, "delta": d}]}) for d in deltas),
                   delta(finish="stop"), DONE])
            for deltas in ([{name: "I "}, {name: "look"}, {"tool_calls": [call]}],
                           [{name: "so"}, {"content": "up it is"}])
        )  # fmt: skip
    else:
        about = {"role": "assistant", "content": None, name: "I look", "tool_calls": [call]}
        first = whole(about, "tool_calls")
        last = whole({"role": "assistant", "content": "up it is", name: "so"})
    answer, _, _, fake = await ask([first, last], PID, stream=stream)
    assert sent_back(fake)[0][name] == "I look"
    assert said(answer, stream) == "up it is"
    if stream:
        thought = [c["choices"][0]["delta"].get(name) for c in chunks(answer)]  # type: ignore[index]
        assert [t for t in thought if t] == ["I ", "look", "so"]
    else:
        assert answer.json()["choices"][0]["message"][name] == "so"


async def test_what_a_servers_chunks_lack_is_not_made_up():
    """No time where it tells none; the first id and time that are told hold for all that follow."""
    bare = sse({"choices": [{"index": 0, "delta": {"content": "a"}}]})
    dated = sse({"id": "x1", "created": 5, "choices": [{"index": 0, "delta": {"content": "b"}}]})
    other = sse({"id": "x2", "created": 9, "choices": [{"index": 0, "delta": {"content": "c"}}]})
    end = delta(finish="stop")
    answer, _, _, _ = await ask([Reply([bare, dated, other, end, DONE])], PID, stream=True)
    told = [(c.get("id", "-"), c.get("created", "-")) for c in chunks(answer)]
    assert told == [("-", "-"), ("x1", 5), ("x1", 5), ("x1", 5)]
