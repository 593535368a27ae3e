"""Server-sent events are cut right, however the bytes are split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.stream.sse import SseEvent, SseReader


def read(*chunks: bytes, limit: int = 1 << 20) -> list[bytes]:
    reader = SseReader(limit)
    return [event.data for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("space", [b"", b" "])
def test_every_line_end_and_an_optional_space_are_understood(newline, space):
    """LF, CRLF and bare CR, with and without the space after the colon (faults 1, 2)."""
    stream = b"".join(b"data:" + space + d + newline * 2 for d in (b"A", b"B", b"[DONE]"))
    assert read(stream) == [b"A", b"B", b"[DONE]"]


def test_a_crlf_cut_in_two_reads_makes_no_empty_event():
    """The CR that ends a read may be half of a CRLF (faults 2b)."""
    assert read(b"data: {A}\r\n\r", b"\ndata: {B}\r\n\r\n") == [b"{A}", b"{B}"]


def test_a_bare_cr_event_is_released_by_the_next_events_first_byte():
    """With CR line ends the first event comes out when the second one begins (faults 2a)."""
    reader = SseReader()
    assert [e.data for e in reader.feed(b"data: {A}\r\r")] == [b"{A}"]
    assert [e.data for e in reader.feed(b"data: {B}\r\r")] == [b"{B}"]


def test_an_event_cut_anywhere_is_one_event():
    """Halves are kept until the blank line, also where the line end itself is cut (faults 4, 5)."""
    assert read(b'data: {"a":', b"\ndata: 1}", b"\n", b"\n") == [b'{"a":\n1}']


def test_comments_and_events_without_data_say_nothing():
    """Keep-alives are not events (faults 7)."""
    assert read(b":\n\n: ping - x\n\nevent: ping\n\ndata: x\n\n") == [b"x"]


def test_event_names_and_fields_without_a_value_follow_the_standard():
    """The type is kept, and a bare `data` line is an empty line of data."""
    assert SseReader().feed(b"event: delta\ndata\ndata: x\nid: 1\n\n") == [
        SseEvent("delta", b"\nx")
    ]


def test_an_event_over_the_limit_is_skipped_and_counted_and_the_next_one_is_read():
    """A hostile, endless event costs bounded memory and one count."""
    reader = SseReader(limit=100)
    assert reader.feed(b"data: " + b"x" * 500) == []
    assert reader.feed(b"y" * 500 + b"\ndata: more\n\ndata: ok\n\n") == [SseEvent("", b"ok")]
    assert reader.skipped == 1


streams = st.lists(
    st.one_of(
        st.sampled_from(
            [b"data: a", b"data:b", b": c", b"event: e", b"data", b"\n", b"\r", b"\r\n", b"\n\n"]
        ),
        st.binary(max_size=6),
    ),
    max_size=30,
).map(b"".join)


@given(streams, st.data())
def test_any_split_of_any_bytes_gives_the_same_events(stream, data):
    """The reader has no memory of where reads ended, and never raises."""
    whole = SseReader().feed(stream)
    reader, found, rest = SseReader(), [], stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += reader.feed(rest[:size])
        rest = rest[size:]
    assert found == whole
