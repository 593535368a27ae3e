"""The HTTP client that retrievers and tools share."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.web import Web
from tests.fake_llm.server import Hang, Reply, fake_llm

OK = Reply([b"{}"], content_type="application/json", framing="length")


@asynccontextmanager
async def web() -> AsyncIterator[Web]:
    made = Web()
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def test_a_packed_answer_is_cut_off_at_what_it_unpacks_to():
    """200 MB in 200 KB: no more is unpacked than a little beyond the limit."""
    bomb = gzip.compress(bytes(200_000_000))
    packed = Reply([bomb], content_type="application/json", headers=[("Content-Encoding", "gzip")])
    async with fake_llm(packed) as server, web() as client:
        tracemalloc.start()
        try:
            with pytest.raises(StageProblem) as refused:
                await client.ask("POST", server.url, {}, {}, 1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert refused.value.kind == "result_too_large"
    assert peak < 20_000_000


async def test_a_server_that_hangs_takes_no_connection_from_another():
    """However many requests wait for it."""
    async with fake_llm(Reply([Hang()], head_first=False)) as hangs, fake_llm(OK) as works, web() as at:
        waiting = [asyncio.create_task(at.ask("POST", hangs.url, {}, {}, 100)) for _ in range(100)]
        await asyncio.wait_for(hangs.asked.wait(), 10)
        assert await asyncio.wait_for(at.ask("POST", works.url, {}, {}, 100), 10) == b"{}"
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_requests_that_are_cancelled_use_up_no_connections():
    """20 workers that cancel within 50 ms, then ten requests that all get their answer."""
    async with fake_llm(OK) as server, web() as client:

        async def worker(number: int) -> None:
            for turn in range(20):
                try:
                    async with asyncio.timeout((number * 7 + turn * 13) % 50 / 1000):
                        await client.ask("POST", server.url, {}, {}, 100)
                except TimeoutError:
                    continue

        await asyncio.gather(*map(worker, range(20)))
        asked = [client.ask("POST", server.url, {}, {}, 100) for _ in range(10)]
        assert await asyncio.wait_for(asyncio.gather(*asked), 10) == [b"{}"] * 10


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_a_request_without_a_body_names_no_type_of_one(method: str):
    """Nor does one with a body lose its own."""
    ok = Reply([b"{}"], content_type="application/json", framing="length")
    web = Web()
    await web.start()
    try:
        async with fake_llm(ok) as server:
            await web.ask(method, server.url, {}, None, 1000)
            await web.ask("POST", server.url, {}, {}, 1000)
            kinds = [asked.header("content-type") for asked in server.requests]
    finally:
        await web.close()
    assert kinds == [None, "application/json"]


@pytest.mark.parametrize(("status", "kind"), [(304, "304"), (300, "300"), (302, "redirect_refused")])
async def test_a_status_that_leads_nowhere_is_no_redirect(status: int, kind: str):
    """It is told as any other."""
    web = Web()
    await web.start()
    try:
        async with fake_llm(Reply([b""], status=status, framing="length")) as server:
            with pytest.raises(StageProblem) as told:
                await web.ask("GET", server.url, {}, None, 1000)
    finally:
        await web.close()
    assert told.value.kind == kind
