"""Who may ask, how often, how large, how many at once."""

from __future__ import annotations

import asyncio
import hashlib
import logging

import httpx
import pytest
from pydantic import ValidationError

from proxy.errors import ProxyError
from proxy.settings import AccessSettings, ClientKey, UpstreamSettings, UpstreamTarget
from proxy.upstream.access import Access
from proxy.upstream.answers import Refusal
from proxy.upstream.answers import answer as send_refusal
from proxy.upstream.pool import Pool
from tests.fake_llm import dialects
from tests.fake_llm.server import Gate, Reply, fake_llm
from tests.support.clock import FakeClock
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"


def key(name: str, secret: str, **more: object) -> ClientKey:
    return ClientKey(name=name, sha256=hashlib.sha256(secret.encode()).hexdigest(), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Authorization": "Bearer sk-one"}, 200), ({"x-api-key": "sk-two"}, 200),
     ({"api-key": "sk-one"}, 200), ({"Authorization": "Bearer wrong"}, 401),
     ({"Authorization": "Basic sk-one"}, 401), ({}, 401)],
)  # fmt: skip
async def test_a_client_needs_a_key_and_the_upstream_never_sees_it(headers, status):
    """OpenAI's, Anthropic's and Azure's header count; a wrong key is a recorded 401."""
    access = AccessSettings(keys=(key("one", "sk-one"), key("two", "sk-two")))
    async with (
        fake_llm(dialects.chat(1)) as fake,
        live_proxy(fake.url, access=access) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + CHAT, json={"stream": True}, headers=headers)
        [root] = await proxy.sink.wait_for(1)
        told = "".join(s.to_json() for s in proxy.sink.requests[0])
    assert answer.status_code == status
    assert "sk-" not in told
    assert len(fake.requests) == (status == 200)
    if status == 200:
        names = {n.lower() for n, _ in fake.requests[0].headers}
        assert not names & {"authorization", "x-api-key", "api-key"}
    else:
        assert (root[semconv.STATUS], root[semconv.ERROR_TYPE]) == ("error", "invalid_api_key")
        assert answer.json()["error"]["type"] == "invalid_api_key"


def enter(access: Access, secret: str) -> None:
    with access.enter([(b"authorization", f"Bearer {secret}".encode())]):
        pass


def test_each_key_has_its_own_rate():
    """Two a minute: the third is a 429 that says when; another key is not touched by it."""
    clock = FakeClock()
    keys = (key("one", "a"), key("two", "b", requests_per_minute=4))
    access = Access(AccessSettings(keys=keys, requests_per_minute=2), clock)
    enter(access, "a")
    enter(access, "a")
    with pytest.raises(Refusal) as refused:
        enter(access, "a")
    assert (refused.value.status, refused.value.kind) == (429, "rate_limit_exceeded")
    assert refused.value.retry_after_s == pytest.approx(30)
    for _ in range(4):
        enter(access, "b")
    clock.advance(30.1)
    enter(access, "a")


async def test_a_client_that_comes_back_when_told_to_is_let_in():
    """Retry-After has whole seconds, so they are rounded up."""
    wait = Refusal(429, "rate_limit_exceeded", "x", 1.2)
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await send_refusal(send, wait)
    assert (b"retry-after", b"2") in sent[0]["headers"]


@pytest.mark.parametrize("given", [{}, {"keys": (key("one", "sk-one"),)}])
async def test_a_client_that_asks_first_is_not_told_to_send_what_is_refused(given):
    """With Expect: 100-continue the refusal is the first answer, and at once."""
    access = AccessSettings(max_request_bytes=10, **given)
    async with fake_llm(dialects.chat(1)) as fake, live_proxy(fake.url, access=access) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: p\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n")
        seen = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await proxy.sink.wait_for(1)
    assert seen.startswith(b"HTTP/1.1 401 " if given else b"HTTP/1.1 413 ")
    assert b"100 Continue" not in seen
    assert not fake.requests


async def test_the_access_log_names_no_query(caplog):
    """A query may hold a key (faults 64)."""
    caplog.set_level("INFO", "uvicorn.access")
    logging.getLogger("uvicorn.access").propagate = True
    async with (
        fake_llm(dialects.chat(1)) as fake,
        live_proxy(fake.url, proxy={"access_log": True}) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT + "?api_key=CANARY6", json={"stream": True})
        await client.get(proxy.url + "/health?api_key=CANARY6")
    assert f'"POST {CHAT} HTTP/1.1" 200' in caplog.text
    assert "CANARY6" not in caplog.text


async def test_too_many_in_flight_is_a_503_that_says_when_to_come_back():
    """The limit counts requests until their last byte; the slot is free again after."""
    gate = asyncio.Event()
    reply = Reply([dialects.ROLE, Gate(gate), dialects.content("a", "stop"), dialects.DONE])
    access = AccessSettings(max_in_flight=1, retry_after_s=2)
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url, access=access) as proxy,
        httpx.AsyncClient() as client,
    ):
        held = asyncio.create_task(client.post(proxy.url + CHAT, json={"stream": True}))
        await fake.asked.wait()
        second = await client.post(proxy.url + CHAT, json={"stream": True})
        gate.set()
        assert (await held).status_code == 200
        third = await client.post(proxy.url + CHAT, json={"stream": True})
    assert (second.status_code, second.headers["retry-after"]) == (503, "2")
    assert second.json()["error"]["type"] == "overloaded"
    assert third.status_code == 200


@pytest.mark.parametrize("told", [True, False])
async def test_a_request_over_the_size_limit_is_a_413(told):
    """By its Content-Length at once, without one as soon as it is over; nothing goes on as whole."""

    async def parts():
        for _ in range(30):
            yield b"x" * 100

    async with (
        fake_llm(dialects.chat(1)) as fake,
        live_proxy(fake.url, access=AccessSettings(max_request_bytes=1000)) as proxy,
        httpx.AsyncClient() as client,
    ):
        answers = [
            await client.post(proxy.url + path, content=b"x" * 3000 if told else parts())
            for path in (CHAT, "/upload")
        ]
        roots = await proxy.sink.wait_for(2)
    assert [a.status_code for a in answers] == [413, 413]
    assert answers[0].json()["error"]["type"] == "request_too_large"
    assert {r[semconv.ERROR_TYPE] for r in roots} == {"request_too_large"}
    assert not fake.requests


def test_a_file_of_keys_is_read_and_a_bad_line_is_named(tmp_path):
    """NAME:SHA256[:PER_MINUTE], comments and blank lines; errors quote no line."""
    file = tmp_path / "keys"
    good = hashlib.sha256(b"a").hexdigest()
    file.write_text(f"# team\n\none:{good}\ntwo:{good.upper()}:5\n")
    assert Access(AccessSettings(keys_file=file), FakeClock()).guarded
    file.write_text("one:sk-CANARY-in-the-clear\n")
    with pytest.raises(ProxyError) as problem:
        Access(AccessSettings(keys_file=file), FakeClock())
    assert f"{file}:1" in str(problem.value)
    assert "CANARY" not in str(problem.value)
    with pytest.raises(ProxyError, match="cannot be read"):
        Access(AccessSettings(keys_file=tmp_path / "none"), FakeClock())


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://h", "http://u:CANARY@h", "http://h?key=CANARY", "http://"]
)
def test_an_upstreams_address_is_checked_and_no_secret_in_it_is_shown(url):
    """The error says the form and the way out; it does not repeat what was given."""
    with pytest.raises(ValidationError) as problem:
        UpstreamTarget(url=url)
    assert "CANARY" not in str(problem.value)
    assert "upstream" in str(problem.value)


def test_an_upstreams_key_must_be_there(tmp_path, monkeypatch):
    """A missing variable, a missing and an empty file stop the start with one sentence."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    (tmp_path / "empty").write_text("\n")
    for more in ({"api_key_env": "NO_SUCH_KEY"}, {"api_key_file": tmp_path / "none"},
                 {"api_key_file": tmp_path / "empty"}):  # fmt: skip
        target = UpstreamTarget(url="http://h", **more)
        with pytest.raises(ProxyError, match="the key of upstream h"):
            Pool(UpstreamSettings(targets=(target,)), FakeClock())
    (tmp_path / "good").write_text("CANARY\n")
    made = Pool(
        UpstreamSettings(targets=(UpstreamTarget(url="http://h", api_key_file=tmp_path / "good"),)),
        FakeClock(),
    )
    assert "CANARY" not in repr(made.upstreams)
