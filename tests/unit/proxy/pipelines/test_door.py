"""Requests that name a pipeline and are not for it: none is answered without it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import httpx
import pytest

from tests.fake_llm.server import fake_llm
from tests.support.live_proxy import live_proxy
from tests.support.pipelines import ANSWER, CHAT, USER
from tracer import semconv

ROUTES = [
    "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/score", "/v1/moderations",
    "/v1/chat/completions/",
]  # fmt: skip


@pytest.mark.parametrize("path", ROUTES)
async def test_a_pipelines_name_on_another_route_is_refused_and_goes_nowhere(path: str):
    """A server that takes any name would answer it without documents or tools. Other
    models' requests go on as they came.
    """
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines={"bot": {"model": "m"}}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        refused = await client.post(proxy.url + path, json={"model": "bot", "input": "x"})
        assert fake.requests == []
        body = b'{"model" : "m", "input":"x"}'
        passed = await client.post(proxy.url + path, content=body)
        roots = await proxy.sink.wait_for(2)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "pipeline_route"
    assert passed.status_code == 200
    assert [asked.body for asked in fake.requests] == [body]
    assert roots[0][semconv.ERROR_TYPE] == "pipeline_route"


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress])
async def test_a_packed_request_is_a_pipelines_too(packed: Callable[[bytes], bytes]):
    """Unread it would be answered without the pipeline. A plain model's goes on packed."""
    kind = {"content-encoding": "gzip" if packed is gzip.compress else "deflate"}
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines={"bot": {"model": "m", "system_prompt": "Help."}}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        for name in ("bot", "m"):
            body = packed(json.dumps({"model": name, "messages": USER, "stream": True}).encode())
            answer = await client.post(proxy.url + CHAT, content=body, headers=kind)
            assert answer.status_code == 200
    ours, theirs = fake.requests
    assert json.loads(ours.body)["messages"][0] == {"role": "system", "content": "Help."}
    assert ours.header("content-encoding") is None
    assert (theirs.body, theirs.header("content-encoding")) == (body, kind["content-encoding"])


@pytest.mark.parametrize("body", [b'{"model":"bot","messages":[\xff]}', b'{"model":"bot","a":'])
async def test_a_request_that_is_no_json_is_told_so(body: bytes):
    """Its model is found by pattern, and nothing is guessed of the rest."""
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines={"bot": {"model": "m"}}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        refused = await client.post(proxy.url + CHAT, content=body)
    assert refused.status_code == 400
    assert "no JSON object" in refused.json()["error"]["message"]
    assert fake.requests == []


@pytest.mark.parametrize("size", [1_500, 5_000, 300_000])
async def test_a_request_longer_than_a_pipeline_reads_is_refused(size: int):
    """By that pipeline's own limit, be another one's larger, and also where nobody reads so much.
    A plain model's request of that size goes on.
    """
    pipelines = {
        "bot": {"model": "m", "max_request_bytes": 1_000},
        "big": {"model": "m", "max_request_bytes": 4_000},
    }
    messages = [{"role": "user", "content": "x" * size}]
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines=pipelines) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        refused = await client.post(proxy.url + CHAT, json={"model": "bot", "messages": messages})
        assert fake.requests == []
        await client.post(proxy.url + CHAT, json={"model": "m", "messages": messages})
        small = await client.post(proxy.url + CHAT, json={"model": "bot", "messages": USER})
        roots = await proxy.sink.wait_for(3)
    assert refused.status_code == 413
    assert "1000 bytes that pipeline bot reads" in refused.json()["error"]["message"]
    assert roots[0][semconv.ERROR_TYPE] == "request_too_large"
    assert json.loads(fake.requests[0].body)["messages"] == messages
    assert small.status_code == 200


async def test_a_pipeline_that_bears_its_models_name_leaves_the_other_routes_to_it():
    """It stands before the model for chats alone."""
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines={"m": {"model": "m"}}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        passed = await client.post(proxy.url + "/v1/completions", json={"model": "m"})
    assert passed.status_code == 200
    assert len(fake.requests) == 1


async def test_of_two_encodings_of_a_request_the_first_counts():
    """As for requests that are for no pipeline."""
    body = gzip.compress(json.dumps({"model": "bot", "messages": USER}).encode())
    async with (
        fake_llm(lambda _: ANSWER) as fake,
        live_proxy(fake.url, pipelines={"bot": {"model": "m"}}) as proxy,
        httpx.AsyncClient(timeout=20) as client,
    ):
        twice = [("content-encoding", "gzip"), ("content-encoding", "br")]
        answer = await client.post(proxy.url + CHAT, content=body, headers=twice)
    assert answer.status_code == 200
    assert json.loads(fake.requests[0].body)["model"] == "m"
