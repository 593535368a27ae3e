"""Calls in the form before ``tool_calls``, and answers of several choices."""

from __future__ import annotations

import json

import pytest

from tests.fake_llm.dialects import DONE, ROLE, content, delta, sse, whole
from tests.fake_llm.server import Reply
from tests.support.pipelines import ask, bot, chunks, text_of, tool
from tracer import semconv

PID = bot(tools=[tool("pid")])


def legacy(name: str, stream: bool, text: str = "") -> Reply:
    if not stream:
        call = {"name": name, "arguments": "{}"}
        return whole({"role": "assistant", "content": text or None, "function_call": call},
                     finish="function_call")  # fmt: skip
    said = [content(text)] if text else []
    return Reply([ROLE, *said, delta(function_call={"name": name, "arguments": ""}),
                  delta(function_call={"arguments": "{}"}), delta(finish="function_call"), DONE])  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_in_the_old_form_alone_is_a_bad_answer(stream: bool):
    """Its client knows no such function."""
    answer, [root], _, _ = await ask([legacy("pid", stream)], PID, stream=stream)
    assert "bad_answer" in answer.text
    assert "function_call" not in answer.text
    assert root[semconv.STATUS] == "error"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_in_the_old_form_beside_a_text_is_left_out(stream: bool):
    """The text is the answer, and it does not end in a call."""
    answer, _, _, _ = await ask([legacy("pid", stream, "hm")], PID, stream=stream)
    assert "function_call" not in answer.text
    end = chunks(answer)[-1] if stream else answer.json()
    assert end["choices"][0]["finish_reason"] == "stop"
    said = text_of(answer) if stream else end["choices"][0]["message"]["content"]
    assert said == "hm"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_function_of_the_clients_own_is_called_in_the_old_form(stream: bool):
    """It goes out as it came."""
    answer, [root], _, _ = await ask(
        [legacy("mine", stream)], PID, stream=stream, functions=[{"name": "mine"}]
    )
    assert answer.text.count('"function_call": {') == (2 if stream else 1)
    end = chunks(answer)[-1] if stream else answer.json()
    assert end["choices"][0]["finish_reason"] == "function_call"
    assert root[semconv.STATUS] == "ok"


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_of_several_choices_the_client_gets_the_first(stream: bool, apart: bool):
    """The same way streamed and whole, in one chunk or each in its own."""
    call = {"index": 0, "id": "c", "function": {"name": "pid", "arguments": "{}"}}
    said: list[dict[str, object]] = [{"content": "A"}, {"content": "B", "tool_calls": [call]}]
    if stream:
        told = [{"index": i, "delta": one} for i, one in enumerate(said)]
        ends = [{"index": i, "delta": {}, "finish_reason": "stop"} for i in range(2)]
        parts = [[one] for one in (*told, *ends)] if apart else [told, ends]
        reply = Reply([ROLE, *(sse({"choices": part}) for part in parts), DONE])
    else:
        body = {"choices": [{"index": i, "message": one} for i, one in enumerate(said)]}
        reply = Reply([json.dumps(body).encode()], content_type="application/json", framing="length")
    answer, _, _, fake = await ask([reply], PID, stream=stream)
    assert len(fake.requests) == 1
    assert '"B"' not in answer.text
    assert "pid" not in answer.text
    got = text_of(answer) if stream else answer.json()["choices"][0]["message"]["content"]
    assert got == "A"
