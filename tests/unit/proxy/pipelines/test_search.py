"""Any search endpoint as retriever: what it finds, and answers of which a part is odd."""

from __future__ import annotations

import json

import pytest

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.retrieve.http import SearchRetriever
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import HttpRetriever
from proxy.pipelines.web import Web
from tests.fake_llm.server import Reply, fake_llm
from tracer import semconv
from tracer.clock import SystemClock

GOOD = {"text": "the sky", "id": 7}


async def found(hits: object, trace: Trace, top_k: int = 2) -> list[tuple[str, str]]:
    body = json.dumps({"hits": hits}).encode()
    reply = Reply([body], content_type="application/json", framing="length")
    async with fake_llm(lambda _: reply) as server:
        given = HttpRetriever(name="s", url=server.url, documents_path="$.hits", top_k=top_k)
        web = Web()
        await web.start()
        try:
            documents = await SearchRetriever(given, web, SystemClock()).find("q", trace)
        finally:
            await web.close()
    return [(one.id, one.text) for one in documents]


@pytest.mark.parametrize("odd", [{}, {"id": 1, "text": None}, {"text": ["a"]}, {"text": " "}, None, 5, []])
async def test_one_document_without_a_text_is_left_out_and_the_search_stands(odd: object):
    """As many with a text as are wanted are taken, and the span counts those without."""
    trace = Trace(1, 2, 1)
    assert await found([odd, GOOD, "the sea", "more"], trace) == [("7", "the sky"), ("", "the sea")]
    assert trace.notes[semconv.DOCUMENTS_WITHOUT_TEXT] == 1


async def test_a_search_of_which_no_document_has_a_text_has_failed():
    """The path to the text is wrong: it is named."""
    with pytest.raises(StageProblem, match="no document has a text at text"):
        await found([{"body": "a"}, {"body": "b"}], Trace(1, 2, 1))


async def test_a_search_that_finds_nothing_has_not_failed():
    """Nothing is counted."""
    trace = Trace(1, 2, 1)
    assert await found([], trace) == []
    assert trace.notes.keys() == {semconv.SEARCH_NS}
