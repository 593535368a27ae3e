"""Laws of the tap: no split of the bytes matters, no bytes can break it, nothing is kept."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.upstream.call import UpstreamCall
from proxy.upstream.dialects import Answer, read_event
from proxy.upstream.tap import WHOLE_LIMIT, Tap
from tests.fake_llm.dialects import DONE, ROLE, content, delta, messages, responses, sse, usage
from tests.fake_llm.server import Reply, fake_llm
from tests.support.live_proxy import live_proxy

STAMP = 5


def told(call: UpstreamCall, tap: Tap) -> tuple[object, ...]:
    """Everything a record takes from a tap, gaps aside (they are the stamps' own)."""
    chunks = {i: (c.tokens, c.steps, c.first_mono_ns) for i, c in call.choices.items()}
    return (
        chunks, call.finish_reasons, call.answer, call.trouble, tap.error, tap.done_seen, tap.broken,
        tap.first_token_mono_ns, tap.first_answer_mono_ns, tap.first_chunk_mono_ns,
    )  # fmt: skip


def read(parts: list[bytes], stream: bool = True, coding: str = "") -> tuple[object, ...]:
    call = UpstreamCall("chat", 0, span_id=1)
    tap = Tap(call, stream, coding, must_end=True)
    for part in parts:
        tap.feed(part, STAMP, STAMP)
    tap.end(True)
    return told(call, tap)


def split(data: st.DataObject, body: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


EVENT = st.one_of(
    st.sampled_from([
        ROLE, DONE, content("Hi"), b"\xef\xbb\xbf", b"event: error\ndata: x\n\n", b"error: x\n\n",
        content("Hi"), content("é\u2028", "stop"), delta(1, content="x"),
        delta(reasoning="r"), delta(tool_calls=[{"index": 0}]), usage(3, 2), b": ping\n\n", b"\n",
        sse({"error": {"type": "boom"}}), *messages(), *responses(), *responses(failed=True),
        sse({"choices": [{"index": 0, "text": "a"}], "usage": {"completion_tokens": 1}}),
        usage(1, 2, metrics={"queue_time_ms": 1.5, "time_to_first_token_ms": 2}),
        usage(1, 2, timings={"cache_n": 1, "prompt_n": 2, "prompt_ms": 3.0}),
        b"event: odd\nid: 7\nretry: 5\ndata: {\ndata: }\n\n",
    ]),
    st.binary(max_size=12),
)  # fmt: skip


@given(st.lists(EVENT, max_size=10), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_any_split_of_any_stream_gives_the_same_record(events, end, data):
    """Faults 1–5 for all streams at once: the parts' borders mean nothing."""
    body = b"".join(events).replace(b"\n", end)
    assert read(split(data, body)) == read([body] if body else [])


@given(st.lists(EVENT, max_size=6), st.data())
@settings(deadline=None)
def test_a_packed_stream_says_what_the_plain_one_says(events, data):
    """Decompressing a copy changes nothing of the record (faults 88)."""
    body = b"".join(events)
    packed = gzip.compress(body)
    plain, unpacked = read([body] if body else []), read(split(data, packed), coding="gzip")
    assert plain[:-1] == unpacked[:-1]


@given(st.lists(EVENT, max_size=4), st.sampled_from([zlib.MAX_WBITS, -zlib.MAX_WBITS]), st.data())
def test_deflate_is_read_with_and_without_its_wrapper_in_any_parts(events, wbits, data):
    """Two bytes tell the forms apart, and they may come one by one."""
    body = b"".join(events)
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(body) + packer.flush()
    plain, unpacked = read([body] if body else []), read(split(data, packed), coding="deflate")
    assert plain[:-1] == unpacked[:-1]


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans(),
       st.sampled_from(["", "gzip", "deflate", "br", "odd"]))  # fmt: skip
def test_no_bytes_can_make_the_tap_raise(parts, stream, coding):
    """Whatever an upstream sends under whatever coding."""
    read(parts, stream, coding)


NAMES = st.sampled_from([
    "choices", "delta", "usage", "metrics", "timings", "error", "type", "response", "message",
    "status", "content_block", "index", "finish_reason", "prompt_tokens", "prompt_ms", "id", "model",
    "object", "incomplete_details", "prompt_tokens_details", "code", "text",
])  # fmt: skip
VALUES = st.sampled_from([
    "message_start", "message_delta", "content_block_delta", "content_block_start", "message",
    "error", "response.completed", "response.failed", "response.output_text.delta", "response", "",
])  # fmt: skip


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
))  # fmt: skip
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_json_of_any_shape_can_make_the_reader_raise(value):
    """Known names with values of any type."""
    read_event(json.dumps(value).encode(), Answer())


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=5), st.booleans())
@settings(max_examples=15, deadline=None)
def test_arbitrary_bytes_pass_through_unchanged(parts, stream):
    """Over a real socket, as a stream or as JSON: what went in comes out."""
    import asyncio

    async def through() -> bytes:
        kind = "text/event-stream" if stream else "application/json"
        async with (
            fake_llm(Reply(parts, content_type=kind)) as fake,
            live_proxy(fake.url) as proxy,
            httpx.AsyncClient() as client,
        ):
            path = "/v1/models" if stream else "/v1/chat/completions"
            return (await client.post(proxy.url + path, json={})).content

    assert asyncio.run(through()) == b"".join(parts)


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_answer_is_not_kept(stream):
    """Memory does not grow with the answer: 5,000 chunks of 1 KB take less than 2 MB (faults 44)."""
    chunk = content("x" * 1000) if stream else b"x" * 1000
    call = UpstreamCall("chat", 0, span_id=1)
    tap = Tap(call, stream)
    tap.feed(chunk, 1, 1)
    tracemalloc.start()
    for at in range(5_000):
        tap.feed(chunk, at, at)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (2_000_000 if stream else 4_000_000)


def test_of_a_huge_body_the_usage_at_its_end_is_read():
    """An answer of many embeddings is not parsed whole; its usage is found all the same."""
    body = b'{"data":[' + b"0.125," * (WHOLE_LIMIT // 3) + b'0],"usage":{"prompt_tokens":77}}'
    call = UpstreamCall("embeddings", 0, span_id=1)
    tap = Tap(call, stream=False)
    for at in range(0, len(body), 65536):
        tap.feed(body[at : at + 65536], 1, 1)
    tap.end(True)
    assert call.input_tokens == 77
    assert call.trouble.startswith("body_too_long")


def test_a_bomb_is_unpacked_in_pieces():
    """1 MB that inflates to 1 GB would not fit; a small share of it shows that pieces are bounded."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    call = UpstreamCall("chat", 0, span_id=1)
    tap = Tap(call, stream=True, content_encoding="gzip")
    tracemalloc.start()
    tap.feed(bomb, 1, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
