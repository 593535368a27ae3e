"""Several upstreams: who gets a request, what a failing one costs, what is tried again."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from proxy.settings import UpstreamSettings, UpstreamTarget
from proxy.upstream.answers import Refusal
from proxy.upstream.pool import Pool
from tests.fake_llm import dialects
from tests.fake_llm.server import Gate, Reply, Reset, fake_llm
from tests.support.clock import FakeClock
from tests.support.live_proxy import live_proxy
from tracer import semconv

CHAT = "/v1/chat/completions"


def pool(*names: str, clock: FakeClock | None = None, **settings: object) -> Pool:
    targets = tuple(UpstreamTarget(url=f"http://{n}") for n in names)
    return Pool(UpstreamSettings(targets=targets, **settings), clock or FakeClock())  # type: ignore[arg-type]


def test_the_least_busy_upstream_is_chosen_and_ties_go_round():
    """Fewest in flight, then fewest served."""
    made = pool("a", "b", "c")
    chosen = []
    for _ in range(6):
        one = made.choose("", b"", [])
        made.begin(one)
        chosen.append(one.label)
    assert chosen == ["a", "b", "c"] * 2
    made.end(made.upstreams[1], True)
    assert made.choose("", b"", []).label == "b"


def test_a_prefix_keeps_its_upstream_unless_that_is_much_busier():
    """Rendezvous hashing, with a slack; taking one upstream away moves only its prefixes."""
    made = pool("a", "b", "c", prefix_affinity_bytes=64, affinity_slack=2)
    owners = {bytes([i]): made.choose("", bytes([i]), []).label for i in range(60)}
    assert set(owners.values()) == {"a", "b", "c"}
    fewer = pool("a", "b", prefix_affinity_bytes=64)
    for prefix, owner in owners.items():
        if owner != "c":
            assert fewer.choose("", prefix, []).label == owner
    one = made.choose("", b"x", [])
    for _ in range(3):
        made.begin(one)
    assert made.choose("", b"x", []) is not one


def test_a_failing_upstream_rests_longer_each_time_and_comes_back():
    """Three failures, then 1 s, 2 s, … of rest with one trial each; a success ends it."""
    clock = FakeClock()
    made = pool("a", "b", clock=clock, eject_after_failures=3, eject_s=1.0, eject_max_s=3.0)
    bad = made.upstreams[0]
    for _ in range(3):
        made.begin(bad)
        made.end(bad, False)
    assert made.choose("", b"", []).label == "b"
    clock.advance(1.01)
    made.upstreams[1].served = 99
    assert made.choose("", b"", []) is bad
    made.begin(bad)
    assert made.choose("", b"", []).label == "b", "one trial at a time"
    made.end(bad, False)
    clock.advance(1.5)
    assert made.choose("", b"", []).label == "b"
    clock.advance(0.6)
    made.begin(bad)
    made.end(bad, True)
    assert made.choose("", b"", []) is bad


def test_when_all_rest_the_first_to_come_back_is_asked():
    """Refusing everything because of a hiccup would be worse than asking."""
    made = pool("a", "b", eject_after_failures=1)
    for one in made.upstreams:
        made.begin(one)
        made.end(one, False)
    assert made.choose("", b"", []).label == "a"
    assert made.choose("", b"", [*made.upstreams]) is None


def test_an_unknown_model_is_refused_and_a_client_that_left_is_no_failure():
    """404 model_not_found; None leaves the health as it was."""
    target = UpstreamTarget(url="http://a", models={"small": "m1"})
    made = Pool(UpstreamSettings(targets=(target,)), FakeClock())
    with pytest.raises(Refusal) as refused:
        made.choose("large", b"", [])
    assert (refused.value.status, refused.value.kind) == (404, "model_not_found")
    made.begin(made.upstreams[0])
    made.end(made.upstreams[0], None)
    assert (made.upstreams[0].failures, made.upstreams[0].in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [("http://h:1", "/v1/x", "http://h:1/v1/x"), ("http://h/v1", "/v1/x", "http://h/v1/x"),
     ("http://h/api/", "/v1/x", "http://h/api/v1/x"), ("http://h/v1", "/v11", "http://h/v1/v11")],
)  # fmt: skip
def test_a_prefix_that_url_and_path_share_is_not_doubled(base, path, wanted):
    """OpenAI's base URLs end in /v1, and so do the paths of clients begin."""
    made = Pool(UpstreamSettings(targets=(UpstreamTarget(url=base),)), FakeClock())
    assert made.upstreams[0].url(path, "") == wanted


async def test_a_models_name_leads_to_its_upstream_and_is_translated():
    """Only the name's bytes change; the record has the client's name, the attempt the server's."""
    async with fake_llm(dialects.chat(1)) as one, fake_llm(dialects.chat(1)) as two:
        targets = (
            UpstreamTarget(url=one.url, models={"small": "org/small-7b"}),
            UpstreamTarget(url=two.url, models={"large": "large"}, name="big"),
        )
        async with live_proxy(*targets) as proxy, httpx.AsyncClient() as client:
            body = b'{ "messages":[{"model":"small"}], "model" :"small", "stream":true,"x":1.0e0 }'
            json_type = {"content-type": "application/json"}
            await client.post(proxy.url + CHAT, content=body, headers=json_type)
            await client.post(proxy.url + CHAT, json={"model": "large", "stream": True})
            missing = await client.post(proxy.url + CHAT, json={"model": "other"})
            [small, large, _] = await proxy.sink.wait_for(3)
    assert one.requests[0].body == body.replace(b'"model" :"small"', b'"model" :"org/small-7b"')
    assert len(two.requests) == 1
    assert (small[semconv.MODEL], large[semconv.MODEL]) == ("small", "large")
    names = [[s.name for s in spans] for spans in proxy.sink.requests]
    assert "chat org/small-7b" in names[0]
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "model_not_found"


async def test_a_failed_attempt_is_followed_by_another_one_and_both_are_told():
    """Refused, reset and 503 go to the next upstream; the request's figures are the last attempt's."""
    broken = Reply([Reset()], head_first=False)
    busy = Reply([b"{}"], 503, content_type="application/json", framing="length")
    async with (
        fake_llm(broken) as first,
        fake_llm(busy) as second,
        fake_llm(dialects.chat(3)) as third,
        live_proxy(first.url, second.url, third.url, max_attempts=3) as proxy,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(proxy.url + CHAT, json={"model": "m", "stream": True})
        [root] = await proxy.sink.wait_for(1)
    assert answer.status_code == 200
    assert root[semconv.STATUS] == "ok"
    assert (root[semconv.OUTPUT_TOKENS], root[semconv.CHOICES]) == (3, 1)
    attempts = [s for s in proxy.sink.requests[0] if s.name == "chat m"]
    told = [(a.attributes[semconv.ATTEMPT], a.attributes.get(semconv.ERROR_TYPE)) for a in attempts]
    assert told == [(1, "upstream_disconnect"), (2, "503"), (3, None)]
    ids = {s.header("traceparent").split("-")[2] for s in (*first.requests, *second.requests,
                                                           *third.requests)}  # fmt: skip
    assert ids == {f"{a.context.span_id:016x}" for a in attempts}
    exclusive = [v for k, v in root.items() if k.startswith("stagelens.stage.") and k.endswith("_ns")]
    assert sum(exclusive) == root[semconv.E2E_NS]


async def test_nothing_is_tried_again_once_the_client_has_a_byte():
    """A stream that broke off after its head is broken off, not begun anew."""
    gate = asyncio.Event()
    reply = Reply([dialects.ROLE, Gate(gate), Reset()])
    async with (
        fake_llm(reply) as first,
        fake_llm(dialects.chat(3)) as second,
        live_proxy(first.url, second.url) as proxy,
        httpx.AsyncClient() as client,
    ):

        async def ask() -> None:
            async with client.stream("POST", proxy.url + CHAT, json={"stream": True}) as answer:
                async for _ in answer.aiter_raw():
                    gate.set()

        with pytest.raises(httpx.RemoteProtocolError):
            await ask()
        await proxy.sink.wait_for(1)
    assert not second.requests


async def test_a_body_that_cannot_be_sent_again_is_not():
    """Beyond the limit the body is gone with the first attempt: 502, no second one."""
    async with (
        fake_llm(Reply([Reset()], head_first=False)) as first,
        fake_llm(dialects.chat(3)) as second,
        live_proxy(first.url, second.url, replay_limit_bytes=100) as proxy,
        httpx.AsyncClient() as client,
    ):

        async def parts():
            for _ in range(20):
                yield b"x" * 100
                await asyncio.sleep(0)

        answer = await client.post(proxy.url + CHAT, content=parts())
        await proxy.sink.wait_for(1)
    assert answer.status_code == 502
    assert not second.requests


async def test_an_upstreams_own_key_replaces_the_clients(monkeypatch):
    """From the environment or a file; the client's goes no further, and no span has either."""
    monkeypatch.setenv("FAKE_KEY", "CANARY-up")
    async with fake_llm(dialects.chat(1)) as fake:
        target = UpstreamTarget(url=fake.url, api_key_env="FAKE_KEY", api_key_header="api-key")
        async with live_proxy(target) as proxy, httpx.AsyncClient() as client:
            await client.post(proxy.url + CHAT, json={}, headers={"Authorization": "Bearer CANARY"})
            await proxy.sink.wait_for(1)
            told = json.dumps([s.to_json() for s in proxy.sink.requests[0]])
    assert fake.requests[0].header("api-key") == "CANARY-up"
    assert fake.requests[0].header("authorization") is None
    assert "CANARY" not in told
