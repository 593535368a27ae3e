"""The three first-token clocks stop at the right chunk."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.stream.clocks import StreamClocks

S = 1_000_000_000


def chat(**delta: object) -> bytes:
    body = {"choices": [{"index": 0, "delta": delta}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ROLE = chat(role="assistant", content="")
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


def clocks(*parts: tuple[float, bytes], tokens: int | None = None) -> StreamClocks:
    made = StreamClocks()
    for at, body in parts:
        made.note(body, round(at * S), tokens)
    return made


def seconds(made: StreamClocks) -> tuple[float | None, float | None, float | None]:
    stamps = (made.first_chunk_mono_ns, made.first_token_mono_ns, made.first_answer_mono_ns)
    return tuple(None if s is None else s / S for s in stamps)  # type: ignore[return-value]


def test_the_role_prelude_is_a_chunk_and_not_a_token():
    """Role at 0.05, content at 0.80: first chunk 0.05, TTFT 0.80 (faults 10)."""
    made = clocks((0.05, ROLE), (0.8, chat(content="Hi")), (0.9, DONE))
    assert seconds(made) == (0.05, 0.8, 0.8)
    assert made.done_seen


def test_a_stream_without_a_token_has_no_ttft():
    """Role and DONE alone: no sample, not 0.05 (faults 10)."""
    assert seconds(clocks((0.05, ROLE), (0.1, DONE))) == (0.05, None, None)


def test_reasoning_is_a_token_and_white_space_is_not_an_answer():
    """Both reasoning names stop the token clock; the answer clock waits for text (faults 11)."""
    made = clocks(
        (0.1, ROLE), (1.0, chat(reasoning="Okay")), (1.1, chat(reasoning_content="so")),
        (9.0, chat(content="\n\n")), (9.5, chat(content="Yes")),
    )  # fmt: skip
    assert seconds(made) == (0.1, 1.0, 9.5)
    assert seconds(clocks((1.1, chat(reasoning_content="so"))))[1] == 1.1


def test_a_tool_call_is_a_first_token():
    """An answer that is only a tool call has a TTFT and no first answer (faults 13)."""
    call = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f"}}]
    assert seconds(clocks((0.1, ROLE), (0.5, chat(tool_calls=call)))) == (0.1, 0.5, None)


def test_keep_alives_stop_no_token_clock():
    """Pings are the first chunk at most (faults 7)."""
    made = clocks((1, b":\n\n"), (2, b": ping\n\n"), (3, ROLE), (3.1, chat(content="Hi")))
    assert seconds(made) == (1, 3.1, 3.1)


def test_an_empty_text_is_a_token_only_if_the_engine_counted_one():
    """Empty completion texts during chunked prefill are none; a held-back character is (faults 16)."""
    empty = b'data: {"choices":[{"index":0,"text":""}]}\n\n'
    assert seconds(clocks((0.2, empty), tokens=0))[1] is None
    assert seconds(clocks((0.2, empty), tokens=1))[1] == 0.2
    assert seconds(clocks((0.2, empty), tokens=None))[1] is None


@pytest.mark.parametrize(
    "body",
    [b'data: {"choices":[],"prompt_filter_results":[]}\n\n', b'data: {"choices":null}\n\n',
     b"data: {}\n\n", USAGE, b'data: {"choices":[7]}\n\n', b"data: []\n\n", b"data: {\n\n"],
)  # fmt: skip
def test_odd_chunks_say_nothing_and_break_nothing(body):
    """Empty, missing and null choices, usage tails and broken JSON (faults 28)."""
    assert seconds(clocks((0.1, body), (0.2, chat(content="a"))))[1] == 0.2


def test_an_error_object_in_a_stream_is_seen_even_after_the_answer():
    """A 200 stream that ends in an error object is an error of that type."""
    error = b'data: {"error":{"message":"boom","type":"InternalServerError","code":500}}\n\n'
    made = clocks((0.1, chat(content="Hi")), (0.2, error), (0.3, DONE))
    assert made.error == "InternalServerError"


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "message_start", "message": {"id": "m"}},
         {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
         {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
         {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
        [{"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
         {"type": "response.output_item.added", "item": {}},
         {"type": "response.output_text.delta", "delta": "Hi"},
         {"type": "response.output_text.done", "text": "Hi"},
         {"type": "response.completed", "response": {"status": "completed"}}],
    ],
    ids=["messages", "responses"],
)  # fmt: skip
def test_every_route_that_streams_has_its_first_token(events):
    """The third event holds the first text: not the first event, and not the end (faults 14)."""
    made = clocks(*((n / 10, b"data: " + json.dumps(one).encode() + b"\n\n")
                    for n, one in enumerate(events, 1)))  # fmt: skip
    assert seconds(made) == (0.1, 0.3, 0.3)
    assert made.done_seen
    assert made.finish == {0: "end_turn" if events[0]["type"] == "message_start" else "completed"}


@pytest.mark.parametrize(
    "choice", [{"delta": {}, "token_ids": [245]}, {"text": "", "token_ids": [245]}]
)
def test_a_token_whose_text_is_held_back_is_told_by_its_id(choice):
    """vLLM's return_token_ids names a token that has no text yet."""
    body = b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"
    assert seconds(clocks((0.1, body)))[1:] == (0.1, None)


def test_why_a_choice_ended_is_read_after_the_clocks_have_stopped():
    """The last chunk of each choice is read, however long the answer was before."""
    def end(index: int, reason: str) -> bytes:
        chunk = {"choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"

    parts = [chat(content="a")] * 3 + [end(1, "length"), end(0, "tool_calls"), DONE]
    made = clocks(*((n, part) for n, part in enumerate(parts)))
    assert made.finish == {0: "tool_calls", 1: "length"}


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_can_make_the_clocks_raise(parts):
    """Whatever the events hold, reading them is never an exception."""
    clocks(*((1, b"data: " + part + b"\n\n") for part in parts))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["choices", "delta", "error", "text",
                                                       "content", "type"]), inner, max_size=4)))  # fmt: skip
def test_no_json_can_make_the_clocks_raise(value):
    """Well-formed JSON of any shape is read without an exception."""
    clocks((1, b"data: " + json.dumps(value).encode() + b"\n\n"))
