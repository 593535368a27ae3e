"""Reading answers: tokens, usage, and what makes a request a failed one."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagelens.bench.answer import Answer
from stagelens.bench.sample import Sample
from tests.fake_llm.dialects import ROLE, chat, delta, sse, together, tool_call, usage

SSE = {b"content-type": b"text/event-stream", b"x-stagelens-trace-id": b"ab" * 16}


def read(*parts: bytes, status: int = 200, headers: dict[bytes, bytes] | None = None) -> Sample:
    """``parts`` come one a millisecond."""
    sample = Sample(0, 0, True, sent_ns=1)
    answer = Answer(sample, keep_text=True)
    answer.head(status, SSE if headers is None else headers, 10)
    for n, part in enumerate(parts, 1):
        answer.body(part, n * 1_000_000)
    answer.ended((len(parts) + 1) * 1_000_000)
    sample.said = sample.said or "".join(answer.text)
    return sample


def test_a_stream_gives_its_tokens_times_and_usage():
    """The role prelude is no token; the gaps are between chunks with text."""
    one = read(ROLE, *(sse({"choices": [{"index": 0, "delta": {"content": f"t{n}"}}]})
                       for n in range(3)), delta(finish="stop"), usage(9, 3))  # fmt: skip
    assert (one.first_chunk_ns, one.first_token_ns, one.last_token_ns) == (10**6, 2 * 10**6, 4 * 10**6)
    assert one.gaps == [10**6, 10**6]
    assert (one.input_tokens, one.output_tokens, one.chunks, one.token_gaps) == (9, 3, 3, True)
    assert (one.error, one.said, one.trace_id) == ("", "t0t1t2", "ab" * 16)
    assert one.tpot_ns == 10**6


@settings(deadline=None)
@given(st.lists(st.integers(0, 2000), max_size=12))
def test_where_the_bytes_are_cut_changes_nothing_but_times(cuts):
    """Any division of the stream into reads gives the same tokens and usage."""
    whole = together(chat(tokens=6))
    edges = sorted({0, len(whole), *(c % len(whole) for c in cuts)})
    one = read(*(whole[a:b] for a, b in pairwise(edges)))
    assert (one.error, one.chunks, one.output_tokens) == ("", 6, 6)
    assert one.said == "".join(f"t{n} " for n in range(6))


@pytest.mark.parametrize("count", [True, -5, 2**70, 1.5, "9", None])
def test_what_is_no_count_is_not_taken_for_one(count):
    """The answer stands; its tokens are unknown."""
    told = {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": count}}
    one = read(delta(content="a"), delta(finish="stop"), sse(told))
    assert (one.error, one.input_tokens, one.output_tokens, one.tpot_ns) == ("", None, None, None)


def test_a_redirect_is_no_answer():
    """It is not followed, and named by its status."""
    assert read(b"", status=307, headers={b"content-type": b"text/event-stream"}).error == "http_307"


def test_tool_calls_and_reasoning_are_tokens():
    """Any generated text starts the clock."""
    one = read(*tool_call(0, "c", "f", '{"a":1}'), delta(finish="tool_calls"))
    assert one.first_token_ns == 10**6
    assert read(delta(reasoning_content="hm"), delta(finish="stop")).chunks == 1


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((ROLE, delta(content="a")), "cut_stream"),
        ((sse({"error": {"message": "boom"}}),), "stream_error"),
        ((b"data: {nonsense\n\n",), "bad_event"),
        ((b"data: 7\n\n",), "bad_event"),
    ],
)
def test_a_stream_that_is_not_whole_is_a_failure(parts, error):
    """It has no E2E, and says what was wrong."""
    one = read(*parts)
    assert (one.error, one.e2e_ns) == (error, None)


def test_a_refusal_is_a_failure_with_its_words():
    """The status is in the kind of the error, the body in what was said."""
    one = read(b'{"error": "too\nmany"}', status=429, headers={})
    assert (one.error, one.said, one.e2e_ns) == ("http_429", '{"error": "too many"}', None)


def test_a_whole_document_has_usage_and_no_first_token():
    """Without a stream there is no TTFT."""
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 2,
                      "prompt_tokens_details": {"cached_tokens": 3}}}  # fmt: skip
    one = read(json.dumps(body).encode(), headers={b"content-type": b"application/json"})
    assert (one.error, one.ttft_ns, one.output_tokens, one.cached_tokens) == ("", None, 2, 3)
    assert read(b"[]", headers={}).error == "bad_answer"


def test_several_tokens_in_a_chunk_are_chunk_gaps():
    """Fewer chunks than the server counted tokens: the gaps are not between tokens."""
    one = read(delta(content="ab"), delta(content="cd"), delta(finish="stop"), usage(1, 4))
    assert one.token_gaps is False
    assert one.tpot_ns == pytest.approx(10**6 / 3)


EVENTS = (ROLE, delta(content="a"), delta(content="b"), delta(finish="stop"), usage(9, 2),
          b"data: [DONE]\n\n")  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.replace(b"\n", b"\r\n"),
        lambda e: e.replace(b"\n", b"\r"),
        lambda e: e.replace(b"data: ", b"data:"),
        lambda e: e.replace(b'{"choices": ', b'{"choices":\ndata: '),
        lambda e: b": ping\n\n" + e,
        lambda e: b"event: message\nid: 1\n" + e,
    ],
)
def test_every_form_of_an_event_stream_is_read(change):
    """Other line ends, no space, an event over two lines, comments, fields that say nothing."""
    one = read(*map(change, EVENTS))
    assert (one.error, one.said, one.chunks, one.output_tokens) == ("", "ab", 2, 2)


def test_a_stream_whose_last_line_has_no_end_is_whole():
    """Nothing but [DONE] says so here."""
    assert read(delta(content="a"), b"data: [DONE]").error == ""


@pytest.mark.parametrize("kind", [b"Text/Event-Stream; Charset=UTF-8", b""])
def test_a_stream_is_known_by_its_type_in_any_case_or_by_having_none(kind):
    """A document without a type is one all the same."""
    headers = {b"content-type": kind}
    assert read(*EVENTS, headers=headers).chunks == 2
    document = b' {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'
    assert read(document, headers=headers if not kind else {}).error == ""


def test_an_event_named_error_is_a_failure():
    """Its data need not hold an error of OpenAI's form."""
    one = read(delta(content="a"), sse({"message": "engine died"}, event="error"), b"data: [DONE]\n\n")
    assert (one.error, one.said) == ("stream_error", '{"message": "engine died"}')


def test_an_answer_that_is_compressed_unasked_is_read_or_refused_by_name():
    """The bytes are no broken stream."""
    packed = gzip.compress(b"".join(EVENTS))
    one = read(packed[:30], packed[30:], headers={**SSE, b"content-encoding": b"gzip"})
    assert (one.error, one.output_tokens) == ("", 2)
    other = read(packed, headers={**SSE, b"content-encoding": b"rot13"})
    assert (other.error, other.said) == ("encoded", "the answer came as rot13, which was not asked for")


def test_a_document_nested_too_deeply_is_a_bad_answer():
    """It breaks neither the reading nor the load."""
    deep = b'{"choices": ' + b"[" * 200_000
    assert read(deep, headers={b"content-type": b"application/json"}).error == "bad_answer"
    assert read(b"data: " + deep + b"\n\n").error == "bad_event"


def both(first: str, second: str, **more: object) -> bytes:
    """One event with a word of each of two choices; an empty one says nothing."""
    words = [{"index": n, "delta": {"content": word}, **more} for n, word in enumerate((first, second))]
    return sse({"choices": [one for one in words if one["delta"]["content"] or more]})


def test_the_pace_of_several_choices_is_that_of_each():
    """Two answers at once, 1 ms a token: TPOT is 1 ms, not half of it, and no gap is between them."""
    one = read(both("a", ""), both("b", "A"), both("c", "B"), both("", "C"),
               both("", "", finish_reason="stop"), usage(9, 6))  # fmt: skip
    assert (one.error, one.choices, one.chunks, one.output_tokens) == ("", 2, 6, 6)
    assert one.gaps == [10**6] * 4
    assert (one.tpot_ns, one.token_gaps) == (10**6, True)
    assert (one.first_token_ns, one.last_token_ns) == (10**6, 4 * 10**6)
    assert one.said == "abc"


def test_several_choices_of_one_token_each_have_no_pace():
    """As an answer of one token."""
    one = read(both("a", "b"), both("", "", finish_reason="stop"), usage(9, 2))
    assert (one.error, one.choices, one.tpot_ns) == ("", 2, None)


def test_a_stream_that_ends_amid_one_of_its_choices_is_cut():
    """The other one's finish reason is not its own."""
    one = read(both("a", "b"), sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    assert one.error == "cut_stream"
