"""The tokens of several rounds: their sum, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.pipelines.asked import sum_usage
from tests.fake_llm.dialects import asks_tools, whole, whole_tools
from tests.fake_llm.server import Reply
from tests.support.pipelines import ANSWER, ask, bot, tool
from tracer import semconv

END = whole({"role": "assistant", "content": "ok"})
PID = bot(tools=[tool("pid")])


def without_usage(reply: Reply) -> Reply:
    steps = [s for s in reply.steps if not (isinstance(s, bytes) and s.startswith(b'data: {"choices": []'))]
    [*head, last] = steps
    if reply.framing == "length":
        body = json.loads(last)
        del body["usage"]
        last = json.dumps(body).encode()
    return replace(reply, steps=[*head, last])


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_one_round_did_not_tell_of_its_tokens_is_told_of_none(stream: bool, silent: int):
    """Neither the client nor the record gets a part of the counts as the whole; the spans of the
    calls have what was told.
    """
    rounds = [asks_tools(("pid", "{}")), ANSWER] if stream else [whole_tools(("pid", "{}")), END]
    rounds[silent] = without_usage(rounds[silent])
    more = {"stream_options": {"include_usage": True}} if stream else {}
    answer, [root], proxy, _ = await ask(rounds, PID, stream=stream, **more)
    assert answer.status_code == 200
    assert "usage" not in answer.text
    told = [n for n in root if n in (semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)]
    assert told == []
    calls = [s.attributes for s in proxy.sink.requests[0] if s.name.startswith("chat ")]
    assert sum(semconv.GEN_AI_USAGE_INPUT_TOKENS in one for one in calls) == 1


def test_a_main_count_that_one_answer_lacks_is_left_out_of_the_sum():
    """Details that a server leaves out where they are zero are added up all the same."""
    full = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    details = {"prompt_tokens_details": {"cached_tokens": 5}}
    assert sum_usage([full, full | details]) == {
        "prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6, **details,
    }  # fmt: skip
    assert sum_usage([full, {"prompt_tokens": 1}]) == {"prompt_tokens": 2}
    assert sum_usage([{}, full]) == {}
