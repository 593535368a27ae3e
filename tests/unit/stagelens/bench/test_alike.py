"""Chunks that are known by what stands around their word say what parsing them says."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagelens.bench.alike import Alike
from stagelens.bench.answer import Answer
from stagelens.bench.sample import Sample
from tests.fake_llm.dialects import DONE, usage

WORDS = st.text(
    st.sampled_from('ab {}[]:,"\\\n\té€\U0001f600\x7f'), max_size=6
) | st.sampled_from(['"content":"x"', "data: ", "[DONE]", "null"])
SHAPES = {
    "chat": lambda word: {"id": "c", "choices": [{"index": 0, "delta": {"content": word}}]},
    "second": lambda word: {"choices": [{"index": 1, "delta": {"content": word}, "logprobs": None}]},
    "text": lambda word: {"choices": [{"text": word, "index": 0, "finish_reason": None}], "usage": None},
    "thought": lambda word: {"choices": [{"delta": {"content": None, "reasoning_content": word}}]},
    "logprobs": lambda word: {
        "choices": [{"delta": {"content": word}, "logprobs": {"content": [{"token": word}]}}]
    },
    "role": lambda word: {"choices": [{"delta": {"role": "assistant", "content": word}}]},
    "finish": lambda word: {"choices": [{"delta": {"content": word}, "finish_reason": "stop"}]},
    "counted": lambda word: {
        "choices": [{"delta": {"content": word}}], "usage": {"completion_tokens": len(word)},
    },
    "two": lambda word: {
        "choices": [{"index": n, "delta": {"content": word}} for n in (0, 1)],
    },
    "tool": lambda word: {
        "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}}]
    },
    "error": lambda word: {"error": word, "choices": [{"delta": {"content": word}}]},
}  # fmt: skip


def piece(shape: str, word: str, *, compact: bool, escaped: bool) -> bytes:
    separators = (",", ":") if compact else None
    told = json.dumps(SHAPES[shape](word), separators=separators, ensure_ascii=escaped)
    return f"data: {told}\n\n".encode()


def read(parts: list[bytes]) -> tuple[Sample, list[str]]:
    sample = Sample(0, 0, True, sent_ns=1)
    answer = Answer(sample, keep_text=True)
    answer.head(200, {b"content-type": b"text/event-stream"}, 1)
    for n, part in enumerate(parts, 2):
        answer.body(part, n)
    answer.ended(len(parts) + 2)
    return sample, answer.text


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(SHAPES)), WORDS), max_size=12), st.booleans(),
    st.booleans(), st.integers(0, 200),
)  # fmt: skip
def test_what_is_known_is_what_parsing_says(told, compact, escaped, cut):
    """Whatever the words and however the server writes its chunks, one event cut in two."""
    parts = [piece(shape, word, compact=compact, escaped=escaped) for shape, word in told]
    parts = [*(p for part in parts for p in (part, part)), usage(3, 4), DONE]
    place = cut % len(parts)
    halves = parts[place][: cut % 40 + 1], parts[place][cut % 40 + 1 :]
    parts[place : place + 1] = halves
    known = read(parts)
    with patch.object(Alike, "word", lambda *_: ""):
        assert known == read(parts)


@pytest.mark.parametrize("shape", ["chat", "second", "text", "thought", "role"])
def test_the_second_chunk_of_a_kind_need_not_be_parsed(shape):
    """With any plain word in it; not with one that JSON writes otherwise."""
    alike, first = Alike(), piece(shape, "a", compact=True, escaped=True)
    assert alike.word(first) == ""
    alike.learn(first, SHAPES[shape]("a"))
    assert alike.word(piece(shape, " bcd.", compact=True, escaped=True)) == " bcd."
    assert alike.index == (shape == "second")
    for other in ('"', "\\", "\n", "é", ""):
        assert alike.word(piece(shape, other, compact=True, escaped=False)) == ""


@pytest.mark.parametrize("shape", ["logprobs", "finish", "counted", "two", "tool", "error"])
def test_a_chunk_that_says_more_than_a_word_is_parsed_each_time(shape: str) -> None:
    """Its halves would differ, or hold what changes."""
    alike, made = Alike(), SHAPES[shape]("a")
    first: dict[str, Any] = made
    alike.learn(piece(shape, "a", compact=True, escaped=True), first)
    assert alike.word(piece(shape, "a", compact=True, escaped=True)) == ""
