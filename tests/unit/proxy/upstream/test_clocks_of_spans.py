"""The wall clock may step while a request runs; its spans do not."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess

import httpx
import pytest

from tests.fake_llm import dialects
from tests.fake_llm.server import Asked, Reply, fake_llm
from tests.support.live_proxy import live_proxy
from tracer import semconv
from tracer.clock import SystemClock

CHAT = "/v1/chat/completions"


class FallingClock(SystemClock):
    """A wall clock that is set back by 5 s each time it is read."""

    fallen_s = 0

    def unix_ns(self) -> int:
        self.fallen_s += 5
        return super().unix_ns() - self.fallen_s * 1_000_000_000


async def test_no_span_ends_before_its_start_when_the_wall_clock_steps_back():
    """One anchor and monotonic differences: each duration is the monotonic one (faults 67)."""
    async with (
        fake_llm(dialects.chat(5, ttft_s=0.02, itl_s=0.01)) as fake,
        live_proxy(fake.url, clock=FallingClock()) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={"stream": True})
        [root] = await proxy.sink.wait_for(1)
        [spans] = proxy.sink.requests
    assert all(span.end_time >= span.start_time for span in spans)
    assert spans[0].end_time - spans[0].start_time == root[semconv.E2E_NS]


async def test_a_seeded_jitter_gives_the_same_stream_each_time_and_sane_gaps():
    """Gaps are chunk gaps, one less than the tokens, and none is negative."""
    reply = dialects.chat(12, ttft_s=0.02, itl_s=0.01, seed=7)
    assert reply == dialects.chat(12, ttft_s=0.02, itl_s=0.01, seed=7)
    async with (
        fake_llm(reply) as fake,
        live_proxy(fake.url) as proxy,
        httpx.AsyncClient() as client,
    ):
        await client.post(proxy.url + CHAT, json={"stream": True})
        [root] = await proxy.sink.wait_for(1)
    gaps = [int(g) for g in root[semconv.ITL_NS].split(",")]
    assert len(gaps) == 11
    assert min(gaps) >= 0
    assert root[semconv.TPOT_NS] == pytest.approx(sum(gaps) / 11)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl_sees_what_the_upstream_sends():
    """``curl -N`` prints the stream's very bytes."""
    reply = dialects.chat(3)

    def script(asked: Asked) -> Reply:
        assert json.loads(asked.body)["stream"] is True
        return reply

    async with fake_llm(script) as fake, live_proxy(fake.url) as proxy:
        made = await asyncio.create_subprocess_exec(
            "curl", "-sN", proxy.url + CHAT, "-H", "Content-Type: application/json",
            "-d", '{"model":"m","stream":true}', stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await made.communicate()
        await proxy.sink.wait_for(1)
    assert made.returncode == 0
    assert out == dialects.together(reply)
