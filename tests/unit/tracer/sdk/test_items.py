"""Items of streams: which is a token, which text is the answer's, where the counts are."""

from __future__ import annotations

from types import SimpleNamespace

import anthropic
import openai
import pytest
from pydantic import TypeAdapter

import tracer
from tracer import semconv
from tracer.sdk.items import carries_of, piece_of, usage_of
from tracer.sdk.root import Carries
from tracer.testing import FakeClock, recording

S = 1_000_000_000
NO, TOKEN, ANSWER = Carries.NOTHING, Carries.TOKEN, Carries.ANSWER
INPUT, OUTPUT = semconv.GEN_AI_USAGE_INPUT_TOKENS, semconv.GEN_AI_USAGE_OUTPUT_TOKENS


def delta(**told):
    return {"type": "content_block_delta", "index": 0, "delta": told}


MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 20},
}  # fmt: skip
MESSAGES = [
    ({"type": "message_start", "message": MESSAGE}, NO, ""),
    ({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, NO, ""),
    (delta(type="thinking_delta", thinking="hm"), TOKEN, ""),
    (delta(type="signature_delta", signature="abc"), NO, ""),
    (delta(type="text_delta", text="\n"), TOKEN, "\n"),
    (delta(type="text_delta", text="Hi"), ANSWER, "Hi"),
    (delta(type="input_json_delta", partial_json=""), NO, ""),
    (delta(type="input_json_delta", partial_json='{"a"'), TOKEN, ""),
    ({"type": "content_block_start", "index": 1,
      "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}, TOKEN, ""),
    ({"type": "content_block_stop", "index": 0}, NO, ""),
    ({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
      "usage": {"output_tokens": 9}}, NO, ""),
    ({"type": "message_stop"}, NO, ""),
]  # fmt: skip


def response(kind: str, **more):
    at = {"item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": 1, "logprobs": []}
    return {"type": f"response.{kind}", **at, **more}


RESPONSES = [
    (response("created", response={"id": "r", "usage": None}), NO, ""),
    (response("output_item.added", item={"type": "message"}), NO, ""),
    (response("reasoning_summary_text.delta", delta="so", summary_index=0), TOKEN, ""),
    (response("output_text.delta", delta=" "), TOKEN, " "),
    (response("output_text.delta", delta="Hi"), ANSWER, "Hi"),
    (response("function_call_arguments.delta", delta='{"a"'), TOKEN, ""),
    (response("output_text.done", text="Hi"), NO, ""),
    (response("completed", response={"id": "r", "usage": {"input_tokens": 3, "output_tokens": 9}}), NO, ""),
]


@pytest.mark.parametrize(("event", "carries", "text"), [*MESSAGES, *RESPONSES])
def test_events_are_tokens_only_where_something_was_generated(event, carries, text):
    """Starts, stops, pings and counts are none (faults 10, 14); the answer's text is the answer's only."""
    assert (carries_of(event), piece_of(event)) == (carries, text)


def test_the_clients_own_objects_are_read_as_their_dictionaries_are():
    """Anthropic's events as its client makes them."""
    made = TypeAdapter(anthropic.types.RawMessageStreamEvent)
    for event, carries, text in MESSAGES:
        one = made.validate_python(event)
        assert (carries_of(one), piece_of(one)) == (carries, text)


def test_openais_response_events_are_read_as_objects_too():
    """As its client makes them."""
    one = openai.types.responses.ResponseTextDeltaEvent.construct(**response("output_text.delta", delta="Hi"))
    assert (carries_of(one), piece_of(one)) == (ANSWER, "Hi")


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 9}}, {INPUT: 3, OUTPUT: 9}),
        ({"usage": None}, {}),
        (MESSAGES[0][0], {INPUT: 23, OUTPUT: 1}),
        (MESSAGES[-2][0], {OUTPUT: 9}),
        (RESPONSES[-1][0], {INPUT: 3, OUTPUT: 9}),
        (SimpleNamespace(usage=SimpleNamespace(input_tokens=1, output_tokens="2")), {INPUT: 1}),
        ("usage", {}),
        (None, {}),
    ],
)
def test_the_servers_counts_are_found_where_each_api_has_them(item, told):
    """Anthropic counts what was cached beside the input."""
    assert usage_of(item) == told


@pytest.mark.parametrize("events", [MESSAGES, RESPONSES])
def test_a_stream_of_events_has_its_clocks_and_its_last_counts(events):
    """One event a second: the first token is neither the start's nor the answer's."""
    clock = FakeClock()

    @tracer.llm("m")
    def model():
        for event, _, _ in events:
            clock.forward(1)
            yield event

    with recording(clock, capture_content=True) as seen, tracer.trace("task"):
        list(model())
    call = seen.named("chat m").attributes
    tokens = [n for n, (_, carries, _) in enumerate(events, 1) if carries]
    assert call[semconv.FIRST_ITEM_NS] == tokens[0] * S == 3 * S
    assert call[semconv.ITEMS] == len(tokens)
    assert (call[INPUT], call[OUTPUT]) == (23 if events is MESSAGES else 3, 9)
    assert "Hi" in call[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert "hm" not in call[semconv.GEN_AI_OUTPUT_MESSAGES]
