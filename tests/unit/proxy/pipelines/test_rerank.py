"""A second look at what was found: answers of a reranker that are odd, short, or none."""

from __future__ import annotations

import json
import logging

import pytest

from proxy.pipelines.documents import Document
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.retrieve.rerank import Reranked
from proxy.pipelines.retrieve.watched import TOLD_EVERY_S, Watched
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import Rerank
from proxy.pipelines.web import Web
from tests.fake_llm.server import Hang, Reply, fake_llm
from tests.support.pipelines import ANSWER, ask, bot
from tracer import semconv
from tracer.clock import SystemClock
from tracer.testing import FakeClock


class Three:
    """A retriever of three documents."""

    name, top_k, timeout_s, skips = "three", 3, 5.0, False

    async def find(self, query: str, trace: Trace) -> list[Document]:
        return [Document(text) for text in ("a", "b", "c")]


def said(text: str, status: int = 200) -> Reply:
    return Reply([text.encode()], content_type="application/json", framing="length", status=status)


async def ranked(results: str, trace: Trace, top_k: int = 3) -> list[str]:
    async with fake_llm(lambda _: said('{"results": ' + results + "}")) as server:
        web = Web()
        await web.start()
        try:
            given = Rerank(url=server.url + "/v1/rerank", model="r")
            found = await Reranked(Three(), given, top_k, web, SystemClock()).find("q", trace)
        finally:
            await web.close()
    return [one.text for one in found]


def result(place: str, score: str = "0.5") -> str:
    return f'{{"index": {place}, "relevance_score": {score}}}'


SCORES = ("NaN", "Infinity", "-Infinity", "1e999", "true", '"0.5"', "null", "[]")
PLACES = ("true", "0.5", '"0"', "null", "3", "-1")
ODD = [*(result("0", one) for one in SCORES), *(result(one) for one in PLACES),
       f"{result('0')}, {result('0', '0.4')}", '{"index": 0}', '{"relevance_score": 1}']  # fmt: skip


@pytest.mark.parametrize("results", [f"[{one}]" for one in ODD] + ["{}1", "5", "null", '["a"]', "[[]]"])
async def test_a_score_or_a_place_that_is_none_is_no_order(results: str):
    """Nothing is guessed: the retrieval fails, or is skipped where the settings say so."""
    with pytest.raises(StageProblem) as refused:
        await ranked(results, Trace(1, 2, 1))
    assert refused.value.kind == "bad_answer"


@pytest.mark.parametrize(
    ("results", "top_k", "order"),
    [
        ("[]", 3, "abc"),
        (f"[{result('2')}]", 3, "cab"),
        (f"[{result('2')}]", 2, "ca"),
        (f"[{result('1', '1')}, {result('2', '1' + 400 * '0')}]", 3, "cba"),
        (f"[{result('2.0', '0.9')}, {result('0', '0.9')}]", 2, "ac"),
    ],
)
async def test_documents_without_a_score_stand_behind_those_with_one(
    results: str, top_k: int, order: str
):
    """As they were found: a reranker that names fewer than are wanted loses none."""
    assert await ranked(results, Trace(1, 2, 1), top_k) == list(order)


async def test_a_reranker_that_is_never_there_is_told_now_and_then(caplog: pytest.LogCaptureFixture):
    """Where it is skipped the clients get answers: nobody would see the wrong address."""
    clock = FakeClock()
    async with fake_llm(lambda _: said("{}", 404)) as server:
        web = Web()
        await web.start()
        try:
            given = Rerank(url=server.url, model="r")
            one = Watched(Reranked(Three(), given, 2, web, clock), "bot", clock)
            with caplog.at_level(logging.WARNING, "stagelens.proxy"):
                for _ in range(3):
                    with pytest.raises(StageProblem):
                        await one.find("q", trace := Trace(1, 2, 1))
                clock.forward(TOLD_EVERY_S)
                with pytest.raises(StageProblem):
                    await one.find("q", trace)
        finally:
            await web.close()
    text = "pipeline bot: retriever three fails (404): its reranker: the server answered 404"
    assert [r.getMessage() for r in caplog.records] == [text, text + " (2 more since the last time)"]
    assert semconv.RERANK_NS in trace.notes


async def test_a_search_that_is_late_is_told_too(caplog: pytest.LogCaptureFixture):
    """Its limit is set around it."""
    async with fake_llm(Reply([Hang()])) as search:
        one = {"kind": "http", "name": "s", "url": search.url, "timeout_s": 0.2, "on_error": "skip"}
        answer, _, _, _ = await ask([ANSWER], bot(retrievers=[one]), stream=True)
    assert answer.headers["x-stagelens-skipped"] == "s"
    assert "retriever s fails (timeout): no result within 0.2 s" in caplog.text


async def test_a_search_over_http_and_its_reranking_tell_both_their_times():
    """Together no more than the span."""
    hits = json.dumps({"documents": ["a", "b"]})
    scores = '{"results": [' + result("1") + "]}"
    async with fake_llm(lambda _: said(hits)) as search, fake_llm(lambda _: said(scores)) as reranker:
        one = {"kind": "http", "name": "s", "url": search.url,
               "rerank": {"url": reranker.url, "model": "r"}}  # fmt: skip
        _, _, proxy, fake = await ask([ANSWER], bot(retrievers=[one]), stream=True)
    system = json.loads(fake.requests[0].body)["messages"][0]["content"]
    assert system == 'Help. {"id": "", "text": "b"}\n{"id": "", "text": "a"}'
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval s")
    parts = [span.attributes[name] for name in (semconv.SEARCH_NS, semconv.RERANK_NS)]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= span.end_time - span.start_time
