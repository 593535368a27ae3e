"""What is known of a chunk without parsing it is what parsing says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.call import UpstreamCall
from proxy.upstream.dialects import Answer, read_event
from proxy.upstream.repeats import FORMS, Proven, Repeats
from proxy.upstream.tap import Tap
from tests.fake_llm import dialects


def data_of(event: bytes) -> bytes:
    return event.strip().split(b"data: ", 1)[-1]


TEXT = st.text(max_size=6) | st.sampled_from(["", " ", "\u3000", '"', "\\", "\n", "é", "x", "\ud7ff"])
INNER = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXT | st.none(), "role": st.just("assistant"), "reasoning": TEXT,
        "text": TEXT, "tool_calls": st.just([{"index": 0}]),
    },
)  # fmt: skip
CHUNK = st.fixed_dictionaries(
    {"choices": st.lists(
        st.fixed_dictionaries({"index": st.integers(0, 1)}, optional={
            "delta": INNER, "text": TEXT, "finish_reason": st.sampled_from([None, "stop"]),
        }), max_size=2)},
    optional={"id": st.sampled_from(["a", "b", 'a"', ""]), "usage": st.just({"completion_tokens": 1}),
              "created": st.sampled_from([0, 17, 18.5, "now", None]),
              "error": st.just({"type": "boom"}), "content": TEXT},
)  # fmt: skip
EVENT = st.builds(
    lambda c, packed, ascii_: json.dumps(
        c, separators=(",", ":") if packed else None, ensure_ascii=ascii_
    ).encode("utf-8", "surrogatepass"),
    CHUNK, st.booleans(), st.booleans(),
) | st.sampled_from(
    [data_of(e) for e in (*dialects.messages(), *dialects.responses(), dialects.DONE)]
) | st.binary(max_size=8)  # fmt: skip


@given(
    st.lists(st.lists(EVENT, max_size=8), min_size=1, max_size=3),
    st.lists(st.binary(max_size=4), max_size=4),
)
def test_known_facts_are_those_of_parsing(streams, texts):
    """Any chunks of streams one after another, and the learnt ones with any other bytes as text."""
    proven = Proven()
    for events in streams:
        repeats = Repeats(proven)
        for data in [*events, *events]:
            known = repeats.known(data)
            if known is None:
                repeats.learn(data)
            else:
                assert known == read_event(data, Answer())
        for text in texts:
            data = repeats._before + text + repeats._after
            known = repeats.known(data)
            assert known is None or known == read_event(data, Answer())


@pytest.mark.parametrize(
    "first",
    [
        dialects.content("a"), dialects.delta(reasoning="a"),
        dialects.sse({"choices": [{"index": 0, "text": "a", "finish_reason": None}]}),
        dialects.sse({"type": "content_block_delta", "index": 0,
                      "delta": {"type": "text_delta", "text": "a"}}),
    ],
    ids=["chat", "reasoning", "completions", "messages"],
)  # fmt: skip
def test_the_chunks_that_servers_repeat_are_learnt(first):
    """One parsed chunk is enough for the rest of the stream."""
    repeats = Repeats(Proven())
    data = data_of(first)
    assert repeats.known(data) is None
    repeats.learn(data)
    assert repeats.known(data.replace(b'"a"', b'"bcd"')) == read_event(data, Answer())


def test_one_trial_serves_the_streams_of_a_server(monkeypatch):
    """Their chunks differ in the answer's id and second, and no more is read again."""
    proven, trials = Proven(), []

    def counted(data, answer):
        trials.append(data)
        return read_event(data, answer)

    monkeypatch.setattr("proxy.upstream.repeats.read_event", counted)
    form = b'{"id":"chatcmpl-%d","created":%d,"choices":[{"index":%d,"delta":{"content":"a"}}]}'
    for stream in range(5):
        repeats, data = Repeats(proven), form % (stream, 1700 + stream, 0)
        repeats.learn(data)
        assert repeats.known(data.replace(b'"a"', b'"b"')) == read_event(data, Answer())
    assert len(trials) == 3
    Repeats(proven).learn(form % (0, 0, 1))
    assert len(trials) == 6


def test_the_forms_that_are_remembered_are_bounded():
    """A server that never repeats itself makes nothing grow."""
    proven = Proven()
    for number in range(FORMS * 3):
        Repeats(proven).learn(b'{"n":%d,"choices":[{"index":0,"delta":{"content":"a"}}]}' % number)
    assert len(proven._forms) == FORMS


FRAME = st.tuples(
    st.sampled_from([b"", b"event: content_block_delta\n", b"id: 7\n", b": note\n", b"\n"]),
    st.sampled_from([b"data: ", b"data:", b"xdata: "]),
    st.sampled_from([b"\n\n", b"\n", b"\nid: 1\n\n"]),
)
LETTERS = st.text(max_size=4) | st.sampled_from([" ", "\u3000", "é", '"', "\n", "\r", "x"])
BLOCK = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}'
PLAIN = b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}'


@given(st.lists(LETTERS, max_size=10), FRAME, st.sampled_from([BLOCK, PLAIN]), st.booleans())
def test_pieces_known_whole_say_what_their_bytes_say(texts, frame, form, carriage):
    """Event by event, where repeating ones are not even cut, or byte by byte: one record."""
    head, field, tail = frame
    pieces = [head + field + form % text.encode() + tail for text in texts]
    if carriage:
        pieces = [piece.replace(b"\n", b"\r\n") for piece in pieces]
    whole = b"".join(pieces)
    assert read(pieces) == read([whole[at : at + 1] for at in range(len(whole))])


def read(parts: list[bytes]) -> tuple[object, ...]:
    call = UpstreamCall("chat", 0, span_id=1)
    tap = Tap(call, stream=True)
    for part in parts:
        tap.feed(part, 5, 5)
    tap.end(True)
    chunks = {i: (c.tokens, c.steps, c.first_mono_ns) for i, c in call.choices.items()}
    return (chunks, call.finish_reasons, call.answer, call.trouble, tap.error, tap.done_seen,
            tap.first_chunk_mono_ns, tap.first_token_mono_ns, tap.first_answer_mono_ns)  # fmt: skip


def test_a_repeating_piece_is_known_without_cutting_it():
    """With an event's name before it too, as Anthropic's streams have it."""
    for head in (b"", b"event: content_block_delta\n"):
        repeats = Repeats(Proven())
        piece, data = head + b"data: " + PLAIN % b"a" + b"\n\n", PLAIN % b"a"
        repeats.learn(data)
        assert repeats.known_piece(piece) is None
        repeats.learn_piece(piece, data)
        assert repeats.known_piece(piece.replace(b'"a"', b'"bc"')) == read_event(data, Answer())
