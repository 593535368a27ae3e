"""The official clients work through the proxy unchanged."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from tests.fake_llm import dialects
from tests.fake_llm.server import Asked, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv


def script(asked: Asked) -> Reply:
    body = json.loads(asked.body or b"{}")
    if asked.target == "/v1/models":
        listed = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1,
                                              "owned_by": "x"}]}  # fmt: skip
        return Reply([json.dumps(listed).encode()], content_type="application/json")
    if asked.target == "/v1/embeddings":
        made = {"object": "list", "model": "m", "usage": {"prompt_tokens": 8, "total_tokens": 8},
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]}  # fmt: skip
        return Reply([json.dumps(made).encode()], content_type="application/json")
    if asked.target == "/v1/messages":
        return Reply(dialects.messages())
    if asked.target == "/v1/responses":
        return Reply(dialects.responses())
    if body.get("stream"):
        return dialects.chat(3)
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}}  # fmt: skip
    return Reply([json.dumps(whole).encode()], content_type="application/json")


async def test_openais_client():
    """Chat whole and streamed, responses, embeddings, the list of models, and an early stop."""
    async with fake_llm(script) as fake, live_proxy(fake.url) as proxy:
        client = openai.AsyncOpenAI(base_url=proxy.url + "/v1", api_key="k")
        ask = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        whole = await client.chat.completions.create(**ask)
        assert whole.choices[0].message.content == "Hi"
        text = ""
        async for chunk in await client.chat.completions.create(**ask, stream=True):
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        assert text == "t0 t1 t2 "
        async for event in await client.responses.create(model="m", input="x", stream=True):
            last = event
        assert last.response.usage.output_tokens == 1970
        vectors = await client.embeddings.create(model="m", input="x", encoding_format="float")
        assert vectors.data[0].embedding == [0.5, 0.25]
        assert [m.id async for m in client.models.list()] == ["m"]
        await client.close()
        roots = await proxy.sink.wait_for(5)
    assert [r[semconv.STATUS] for r in roots] == ["ok"] * 5
    routes = ["chat/completions", "chat/completions", "responses", "embeddings", "models"]
    assert [r[semconv.HTTP_ROUTE] for r in roots] == [f"/v1/{r}" for r in routes]
    assert [r.get(semconv.INPUT_TOKENS) for r in roots] == [2, 7, 22118, 8, None]
    assert semconv.OUTPUT_TOKENS not in roots[3]


async def test_anthropics_client():
    """A messages stream gives its text; input counts cached and cache-writing tokens."""
    async with fake_llm(script) as fake, live_proxy(fake.url) as proxy:
        client = anthropic.AsyncAnthropic(base_url=proxy.url, api_key="k")
        async with client.messages.stream(
            model="claude-x", max_tokens=20, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            text = "".join([part async for part in stream.text_stream])
        await client.close()
        [root] = await proxy.sink.wait_for(1)
    assert text == "Hello"
    assert root[semconv.STATUS] == "ok"
    assert (root[semconv.INPUT_TOKENS], root[semconv.CACHED_TOKENS]) == (45, 30)
    assert (root[semconv.OUTPUT_TOKENS], root[semconv.FINISH_REASON]) == (15, "end_turn")
    assert root[semconv.FIRST_TOKEN_NS] > 0


async def test_clients_see_errors_as_the_upstreams_own():
    """The client's own exceptions, for the upstream's refusals and for a broken stream."""
    refusal = Reply([b'{"error":{"message":"no","type":"rate_limited"}}'], 429,
                    content_type="application/json")  # fmt: skip
    async with fake_llm(refusal) as fake, live_proxy(fake.url) as proxy:
        client = openai.AsyncOpenAI(base_url=proxy.url + "/v1", api_key="k", max_retries=0)
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="m", messages=[])
        await client.close()
