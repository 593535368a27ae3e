"""Status, headers, encodings and trace context cross the proxy as they must."""

from __future__ import annotations

import gzip
import json
import zlib

import brotli
import httpx
import pytest
import zstandard

from proxy.settings import UpstreamTarget
from tests.fake_llm import dialects
from tests.fake_llm.server import Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"
WHOLE = json.dumps({
    "id": "c1", "object": "chat.completion", "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "x" * 700}, "finish_reason": "stop"}
    ], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
}).encode()  # fmt: skip


def whole(body: bytes = WHOLE, **more: object) -> Reply:
    return Reply([body], content_type="application/json", framing="length", **more)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (401, [], {"error": {"message": "bad key", "type": "invalid_api_key"}}),
        (429, [("Retry-After", "7")], {"error": {"message": "slow", "type": "rate_limited"}}),
        (503, [("Retry-After", "3")], {"error": {"message": "later", "type": "overloaded"}}),
        (529, [], {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}),
    ],
)
async def test_an_upstreams_refusal_passes_with_status_headers_and_body(status, headers, body):
    """Nothing is turned into a 200 or retried on the same upstream (faults 88)."""
    raw = json.dumps(body).encode()
    async with (
        fake_llm(whole(raw, status=status, headers=headers)) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + CHAT, json={"stream": True})
        [root] = await proxy.sink.wait_for(1)
    assert (answer.status_code, answer.content) == (status, raw)
    assert all(answer.headers[name] == value for name, value in headers)
    assert len(fake.requests) == 1
    assert root[semconv.HTTP_RESPONSE_STATUS_CODE] == status
    assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("error", body["error"]["type"])


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress),
     ("deflate", lambda b: zlib.compress(b, wbits=-15)),
     ("gzip", lambda b: gzip.compress(b[:50]) + gzip.compress(b[50:])),
     ("br", brotli.compress), ("zstd", zstandard.compress),
     ("zstd", lambda b: zstandard.compress(b[:50]) + zstandard.compress(b[50:]))],
    ids=["gzip", "deflate", "raw deflate", "gzip members", "br", "zstd", "zstd frames"],
)  # fmt: skip
@pytest.mark.parametrize("accepts", ["gzip, deflate", None])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_encoded_answer_is_read_and_passes_as_it_is(coding, pack, accepts, stream):
    """Usage is recorded; the client has the very bytes and lengths that agree (faults 88, 89)."""
    plain = dialects.together(dialects.chat(3)) if stream else WHOLE
    packed = pack(plain)
    reply = Reply(
        [packed[:40], packed[40:]] if stream else [packed],
        headers=[("Content-Encoding", coding)],
        content_type="text/event-stream" if stream else "application/json",
        framing="chunked" if stream else "length",
    )
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        client.headers.pop("accept-encoding")
        headers = {} if accepts is None else {"Accept-Encoding": accepts}
        sent = client.build_request("POST", proxy.url + CHAT, json={}, headers=headers)
        answer = await client.send(sent, stream=True)
        raw = b"".join([part async for part in answer.aiter_raw()])
        [root] = await proxy.sink.wait_for(1)
    assert raw == packed
    assert answer.headers["content-encoding"] == coding
    assert stream or int(answer.headers["content-length"]) == len(packed)
    assert root[semconv.OUTPUT_TOKENS] == (3 if stream else 4)
    assert fake.requests[0].header("accept-encoding") == (accepts or "identity")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip"])
async def test_an_unreadable_encoding_costs_the_figures_and_never_the_answer(coding):
    """Garbage under any coding passes; the record says that it could not be read."""
    reply = Reply([b"\x00garbage"], headers=[("Content-Encoding", coding)])
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
        client.stream("POST", proxy.url + CHAT, json={}) as answer,
    ):
        assert b"".join([part async for part in answer.aiter_raw()]) == b"\x00garbage"
        [root] = await proxy.sink.wait_for(1)
    call = next(s for s in proxy.sink.requests[0] if s.name == "chat")
    assert call.attributes[semconv.TAP_TROUBLE] == "content_encoding"
    assert semconv.OUTPUT_TOKENS not in root


async def test_headers_cross_with_duplicates_and_without_hop_by_hop_ones():
    """Also those that Connection names; nothing is added to the answer (faults 89)."""
    reply = whole(headers=[
        ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Odd", "v\xe9"), ("Connection", "X-Gone"),
        ("X-Gone", "1"), ("Keep-Alive", "timeout=5"), ("Date", "then"), ("Server", "theirs"),
    ])  # fmt: skip
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        headers = [("X-A", "1"), ("X-A", "2"), ("Connection", "keep-alive, X-Hop"), ("X-Hop", "1"),
                   ("TE", "trailers"), ("User-Agent", "mine"), ("Cookie", "c=1")]  # fmt: skip
        answer = await client.post(proxy.url + CHAT, json={}, headers=headers)
    sent = [(n.lower(), v) for n, v in fake.requests[0].headers]
    assert [v for n, v in sent if n == "x-a"] == ["1", "2"]
    assert not {"x-hop", "te", "connection"} & {n for n, _ in sent if n != "connection"}
    assert ("user-agent", "mine") in sent
    assert ("cookie", "c=1") in sent
    assert fake.requests[0].header("host") == f"127.0.0.1:{fake.port}"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers.get_list("date") == ["then"]
    assert answer.headers.get_list("server") == ["theirs"]
    assert not {"x-gone", "keep-alive", "x-stagelens-trace-id"} & set(answer.headers)
    assert (b"x-odd", b"v\xe9") in answer.headers.raw


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_pass(status):
    """204 and 304, and HEAD with the length of what it would have sent."""
    reply = Reply([b"HTTP/1.1 %d X\r\nETag: a\r\n\r\n" % status], framing="raw")
    head = Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"], framing="raw")
    async with (
        fake_llm(lambda a: head if a.method == "HEAD" else reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.get(proxy.url + "/v1/models")
        headed = await client.head(proxy.url + "/v1/models")
    assert (answer.status_code, answer.headers["etag"], answer.content) == (status, "a", b"")
    assert headed.headers["content-length"] == "900"


@pytest.mark.parametrize(
    ("flags", "force", "wanted"), [("00", False, "00"), ("00", True, "01"), ("01", False, "01")]
)
async def test_the_trace_goes_on_under_our_span_with_the_callers_flag(flags, force, wanted):
    """Same trace id, our exported client span's id, the flag as decided (faults 52)."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    given = {"traceparent": f"00-{trace}-b7ad6b7169203331-{flags}", "tracestate": "a=1,b=2",
             "baggage": "k=v"}  # fmt: skip
    async with (
        fake_llm(whole()) as fake,
        live_proxy(fake.url, force_sample=force) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={}, headers=given)
        await proxy.sink.wait_for(1)
    [asked] = fake.requests
    version, trace_id, span_id, flag = asked.header("traceparent").split("-")
    call = next(s for s in proxy.sink.requests[0] if s.name == "chat")
    assert (version, trace_id, flag) == ("00", trace, wanted)
    assert int(span_id, 16) == call.context.span_id
    assert call.kind.name == "CLIENT"
    assert (asked.header("tracestate"), asked.header("baggage")) == ("a=1,b=2", "k=v")


async def test_a_bad_trace_context_is_replaced_and_baggage_can_be_kept_back():
    """A garbage traceparent takes its tracestate with it; strip_baggage is by upstream."""
    given = {"traceparent": "nonsense", "tracestate": "a=1", "baggage": "k=v"}
    async with fake_llm(whole()) as fake:
        target = UpstreamTarget(url=fake.url, strip_baggage=True)
        async with live_proxy(target) as proxy, httpx.AsyncClient() as client:
            await client.post(proxy.url + CHAT, json={}, headers=given)
            await proxy.sink.wait_for(1)
    [asked] = fake.requests
    assert asked.header("traceparent").endswith("-01")
    assert asked.header("tracestate") is None
    assert asked.header("baggage") is None


async def test_connections_are_kept_and_their_making_is_told():
    """The second request reuses the connection; the first one tells what connecting took."""
    async with (
        fake_llm(whole()) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        for _ in range(2):
            await client.post(proxy.url + CHAT, json={"model": "m"})
        await proxy.sink.wait_for(2)
        assert fake.connections == 1
    first, second = (
        next(s for s in spans if s.name == "chat m").attributes for spans in proxy.sink.requests
    )
    assert (first[semconv.CONNECTION_REUSED], second[semconv.CONNECTION_REUSED]) == (False, True)
    assert first[semconv.CONNECT_NS] > 0
    assert semconv.CONNECT_NS not in second
    assert first[semconv.FIRST_BYTE_NS] > 0
    assert first[semconv.SERVER_PORT] == fake.port


async def test_a_large_upload_streams_through():
    """A body beyond what is read ahead is passed on as it comes, with its length."""
    async with (
        fake_llm(whole()) as fake,
        live_proxy(fake.url, replay_limit_bytes=1000) as proxy,
        httpx.AsyncClient() as client,
    ):
        body = {"messages": ["x" * 300_000], "model": "m", "stream": False}
        await client.post(proxy.url + CHAT, json=body)

        async def parts():
            for _ in range(50):
                yield b"y" * 10_000

        await client.post(proxy.url + "/v1/audio/transcriptions", content=parts())
        await proxy.sink.wait_for(2)
    first, second = fake.requests
    assert json.loads(first.body) == body
    assert first.header("content-length") == str(len(first.body))
    assert second.body == b"y" * 500_000
    assert second.header("transfer-encoding") == "chunked"


async def test_no_secret_leaves_by_span_or_log(caplog, capfd):
    """Keys are in no span, log or error; the upstream gets the real ones (faults 64, 65)."""
    echo = json.dumps({"error": {"message": "bad CANARY1", "type": "bad CANARY1", "code": "CANARY 1"}})
    given = {
        "Authorization": "Bearer sk-CANARY1", "x-api-key": "CANARY2", "api-key": "CANARY3",
        "Cookie": "s=CANARY4", "Proxy-Authorization": "Basic dTpDQU5BUlk1",
    }  # fmt: skip
    async with (
        fake_llm(whole(echo.encode(), status=401)) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(
            proxy.url + CHAT + "?api_key=CANARY6", json={"messages": ["CANARY"]}, headers=given
        )
        await proxy.sink.wait_for(1)
        told = "".join(s.to_json() for s in proxy.sink.requests[0])
    told += caplog.text + "".join(capfd.readouterr())
    assert "CANARY" not in told
    assert "dTpDQU5BUlk1" not in told
    [asked] = fake.requests
    assert asked.header("authorization") == "Bearer sk-CANARY1"
    assert (asked.header("x-api-key"), asked.header("api-key")) == ("CANARY2", "CANARY3")
    assert asked.target.endswith("?api_key=CANARY6")


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "GET"])
async def test_only_a_post_is_a_model_call(method):
    """A browser's OPTIONS before its POST would halve every figure; the route is named all the same."""
    reply = Reply([], 204, framing="length")
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.request(method, proxy.url + CHAT)
        [root] = await proxy.sink.wait_for(1)
    assert answer.status_code == 204
    assert (root[semconv.STATUS], root[semconv.OPERATION]) == ("ok", "")
    assert root[semconv.HTTP_ROUTE] == CHAT
    assert semconv.CHOICES not in root
