"""--usage: the proxy asks for the usage chunk and the client sees none it did not ask for."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.body import read_asked, with_model, with_usage
from proxy.upstream.cutter import UsageCutter, is_usage_chunk
from tests.fake_llm import dialects
from tests.fake_llm.dialects import DONE, ROLE, content, usage
from tests.fake_llm.server import Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
STREAM = [ROLE, content("a"), content("b", "stop"), usage(3, 2), DONE]


@pytest.mark.parametrize(
    ("options", "forwarded", "chunks"),
    [
        ({}, {"include_usage": True}, 0),
        ({"stream_options": {"include_usage": False}}, {"include_usage": False}, 1),
        ({"stream_options": {"include_usage": True}}, {"include_usage": True}, 1),
        ({"stream_options": {"x": 1}}, {"include_usage": True, "x": 1}, 0),
        ({"stream_options": None}, {"include_usage": True}, 0),
    ],
)
@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_only_the_chunk_the_proxy_asked_for_is_taken_out(options, forwarded, chunks, framing):
    """An explicit false stays false (and what comes all the same passes); usage is stored (faults 29)."""
    async with (
        fake_llm(Reply(STREAM, framing=framing)) as fake,
        live_proxy(fake.url, ask_usage=True) as proxy,
        httpx.AsyncClient() as client,
    ):
        ask = {"stream": True, "model": "m", **options}
        answer = await client.post(proxy.url + CHAT, json=ask)
        [root] = await proxy.sink.wait_for(1)
    assert json.loads(fake.requests[0].body)["stream_options"] == forwarded
    assert answer.content == b"".join(p for p in STREAM if chunks or p != usage(3, 2))
    assert (root[semconv.INPUT_TOKENS], root[semconv.OUTPUT_TOKENS]) == (3, 2)
    assert root[semconv.STATUS] == "ok"


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, {"stream": False}), (CHAT, {}), ("/v1/responses", {"stream": True}),
     ("/v1/messages", {"stream": True}), ("/v1/other", {"stream": True})],
)  # fmt: skip
async def test_nothing_is_asked_where_the_option_does_not_exist(path, body):
    """Whole answers and other routes are forwarded as they came."""
    async with (
        fake_llm(dialects.chat(2)) as fake,
        live_proxy(fake.url, ask_usage=True) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + path, json=body)
    assert json.loads(fake.requests[0].body) == body
    assert answer.content == dialects.together(dialects.chat(2))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.sampled_from([None, 1, 2]))
def test_rewriting_changes_one_member_and_no_other_byte(body, indent):
    """Whatever the request holds, only the model or the option differs afterwards."""
    body.pop("stream_options", None)
    raw = json.dumps({"model": "a", **body}, indent=indent).encode()
    model = with_model(raw, read_asked(raw, True, b"application/json", 0), "b")
    assert json.loads(model) == {**json.loads(raw), "model": "b"}
    asking = with_usage(raw)
    assert json.loads(asking) == {**json.loads(raw), "stream_options": {"include_usage": True}}
    assert asking.replace(b'"stream_options":{"include_usage":true},', b"", 1) == raw


EVENTS = st.lists(
    st.sampled_from([
        ROLE, content("a"), content("b\n"), usage(3, 2), DONE, b": ping\n\n", b":\n\n", b"\n",
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        b'event: x\nid: 1\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[{"index":0}],"usage":{"prompt_tokens":1}}\n\n', b'data: {"usage":{\n\n',
    ]),
    max_size=8,
)  # fmt: skip


@given(EVENTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_the_cut_does_not_depend_on_how_the_bytes_are_split(events, end, data):
    """Exactly the usage chunks go, with their line ends; every other byte stays, in order."""
    parts = [e.replace(b"\n", end) for e in events]
    stream = b"".join(parts)
    wanted = b"".join(p for p in parts if not is_usage_chunk(p))
    cutter, got, at = UsageCutter(), b"", 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += cutter.feed(stream[at : at + size])
        at += size
    assert got + cutter.flush() == wanted


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_usage_chunk_that_ends_with_the_stream_is_cut_too(end):
    """Many clients read line by line and would see it without its blank line."""
    cutter = UsageCutter()
    stream = (content("a") + usage(3, 2)).replace(b"\n", end)[: -len(end)]
    assert cutter.feed(stream) + cutter.flush() == content("a").replace(b"\n", end)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_events_pass_the_cutter(data):
    """Nothing is lost of what is not a usage chunk."""
    cutter = UsageCutter()
    assert cutter.feed(data) + cutter.flush() == data
