"""Requests too long to parse: their model's name is found all the same, and written anew."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings import UpstreamTarget
from proxy.upstream.body import PARSE_LIMIT, read_asked
from proxy.upstream.places import places, value_at
from tests.fake_llm import dialects
from tests.fake_llm.server import fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(["model", "stream", '"model"', "{", "\\", "é"]) | st.text(max_size=8)


@given(st.dictionaries(NAMES, JSON, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_members_are_found_where_json_has_them(body, indent, ascii_only):
    """Whatever stands in keys and values; the values read there are the values."""
    raw = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = places(raw)
    assert set(found) == set(body)
    for key, at in found.items():
        value, end = value_at(raw + b" ", at)
        assert value == body[key]
        assert json.loads(raw[at:end]) == body[key]


@given(st.dictionaries(NAMES, JSON, max_size=5), st.data())
def test_of_a_part_no_more_is_found_than_of_the_whole(body, data):
    """A cut in the middle of a string or a number hides it and invents nothing."""
    raw = json.dumps(body).encode()
    part = raw[: data.draw(st.integers(0, len(raw)))]
    whole = places(raw)
    for key, at in places(part).items():
        assert whole[key] == at
        if (value := value_at(part, at)) is not None:
            assert value[0] == body[key]


@pytest.mark.parametrize("cut", ["1", "1e", "1e+", "1.", "-", "-1", "tru", "12e3"])
def test_a_number_or_word_that_is_cut_off_has_no_value(cut):
    """``1e`` is not 1: the rest of it is not known."""
    assert value_at(cut.encode(), 0) is None


@given(st.binary(max_size=60))
def test_no_bytes_can_make_the_search_raise(data):
    """Bodies are the clients'."""
    for at in places(data).values():
        value_at(data, at)
    read_asked(data, False, b"application/json", 5)


@asynccontextmanager
async def two(first: dict[str, str], second: dict[str, str]):
    """Two upstreams that know these models, a proxy before them, and a client."""
    async with (
        fake_llm(dialects.chat(1)) as one,
        fake_llm(dialects.chat(1)) as other,
        live_proxy(
            UpstreamTarget(url=one.url, models=first), UpstreamTarget(url=other.url, models=second)
        ) as proxy,
        httpx.AsyncClient() as client,
    ):
        yield one, other, proxy, client


def body_of(order: str, size: int) -> dict[str, object]:
    text = 'look: "model": "small", {' + "x" * size
    parts = {
        "model": "large", "stream": True, "max_tokens": 9,
        "messages": [{"role": "user", "content": text, "model": "small"}],
    }  # fmt: skip
    return dict(reversed(parts.items())) if order == "last" else parts


@pytest.mark.parametrize("size", [10, PARSE_LIMIT, 3_000_000], ids=["parsed", "kept", "streamed"])
@pytest.mark.parametrize("order", ["first", "last"])
async def test_an_alias_leads_to_its_upstream_and_is_written_anew_at_any_length(size, order):
    """Official clients put the messages, which may be images, before the model's name."""
    asked = body_of(order, size)
    async with two({"small": "s"}, {"large": "a-much-longer-name"}) as (small, large, proxy, client):
        for _ in range(2):
            answer = await client.post(proxy.url + CHAT, json=asked)
        roots = await proxy.sink.wait_for(2)
    assert answer.status_code == 200
    assert not small.requests
    for request in large.requests:
        assert json.loads(request.body) == {**asked, "model": "a-much-longer-name"}
        assert request.header("content-length") == str(len(request.body))
    assert {root[semconv.MODEL] for root in roots} == {"large"}


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["kept", "streamed"])
@pytest.mark.parametrize("order", ["first", "last"])
async def test_a_form_has_its_model_written_anew_too(size, order):
    """As sound comes, with a file named like the field; every other byte stays."""
    field = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nlarge\r\n'
    file = (b'--B\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\n'
            + b"small\r\n" * (size // 7) + b"\r\n")  # fmt: skip
    body = (field + file if order == "first" else file + field) + b"--B--\r\n"
    async with two({"small": "s"}, {"large": "whisper"}) as (small, large, proxy, client):
        await client.post(proxy.url + "/v1/audio/transcriptions", content=body,
                          headers={"content-type": "multipart/form-data; boundary=B"})  # fmt: skip
        await proxy.sink.wait_for(1)
    assert not small.requests
    assert large.requests[0].body == body.replace(b"\r\n\r\nlarge\r\n", b"\r\n\r\nwhisper\r\n")


async def test_a_request_for_speech_goes_where_its_model_is():
    """Also where the answer is sound, which nobody reads for tokens."""
    async with two({"chat": "c"}, {"tts": "kokoro"}) as (text, speech, proxy, client):
        await client.post(proxy.url + "/v1/audio/speech", json={"model": "tts", "input": "Hi"})
        await proxy.sink.wait_for(1)
    assert not text.requests
    assert json.loads(speech.requests[0].body) == {"model": "kokoro", "input": "Hi"}


async def test_usage_is_asked_for_in_a_long_request_too():
    """Between what is parsed and what is kept whole; the record knows what was asked."""
    asked = body_of("last", PARSE_LIMIT)
    async with (
        fake_llm(dialects.chat(2)) as fake,
        live_proxy(fake.url, ask_usage=True) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + CHAT, json=asked)
        [root] = await proxy.sink.wait_for(1)
    assert json.loads(fake.requests[0].body) == {**asked, "stream_options": {"include_usage": True}}
    assert b'"usage"' not in answer.content
    assert root[semconv.OUTPUT_TOKENS] == 2
    call = next(s for s in proxy.sink.requests[0] if s.name.startswith("chat"))
    assert call.attributes[semconv.GEN_AI_REQUEST_MAX_TOKENS] == 9
