"""The store's documents as retriever: embedded, asked of a collector, reranked; and its faults."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from collectors.documents.model import Chunk, NewDocument
from collectors.documents.table import DocumentTable
from collectors.store.client import Store
from tests.fake_llm.server import Asked, Hang, Reply, fake_llm
from tests.support.documents import fresh_table, served
from tests.support.pipelines import ANSWER, ask, bot
from tracer import semconv

PLACES = {"what is up?": [1.0, 0.2], "the sky": [1.0, 0.0], "the sea": [0.0, 1.0]}


@pytest.fixture
def table(engine: Store) -> Iterator[DocumentTable]:
    with fresh_table(engine) as made:
        yield made


def embeddings(asked: Asked) -> Reply:
    """Vectors by a table, in the wrong order, each with its index."""
    texts = json.loads(asked.body)["input"]
    data = [{"index": i, "embedding": PLACES[text]} for i, text in enumerate(texts)]
    return said({"data": data[::-1]})


def said(body: object, **more: object) -> Reply:
    return Reply([json.dumps(body).encode()], content_type="application/json", framing="length",
                 **more)  # type: ignore[arg-type]  # fmt: skip


def fill(table: DocumentTable, model: str = "e") -> None:
    for text in ("the sky", "the sea"):
        vector = tuple(PLACES[text]) if model else ()
        chunks = (Chunk(text=text, vector=vector),)
        table.add(NewDocument(collection="handbook", source=text, model=model, chunks=chunks))


def handbook(api: str, **more: object) -> dict[str, object]:
    return {"kind": "documents", "name": "docs", "collection": "handbook", "collector_api": api,
            "top_k": 2, **more}  # fmt: skip


async def test_the_query_is_embedded_and_the_nearest_documents_go_to_the_model(table: DocumentTable):
    """The span tells how long embedding and search took; the trace goes to the embedding server."""
    fill(table)
    with served(table) as api:
        async with fake_llm(embeddings) as engine:
            near = {"kind": "openai", "url": engine.url + "/v1", "model": "e"}
            docs = handbook(api, search="vector", embedding=near)
            _, _, proxy, fake = await ask([ANSWER], bot(retrievers=[docs]), stream=True)
    system = json.loads(fake.requests[0].body)["messages"][0]["content"]
    assert system == (
        'Help. {"id": "the sky#0", "text": "the sky"}\n{"id": "the sea#0", "text": "the sea"}'
    )
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval docs")
    assert span.attributes[semconv.DOCUMENTS] == 2
    took = span.end_time - span.start_time
    parts = [span.attributes[name] for name in (semconv.EMBED_NS, semconv.SEARCH_NS)]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= took
    [asked] = engine.requests
    assert asked.target == "/v1/embeddings"
    assert f"{span.context.span_id:016x}" in asked.header("traceparent")


async def test_a_search_by_words_needs_no_embedding(table: DocumentTable):
    """``search: text`` asks for the words alone."""
    fill(table, model="")
    with served(table) as api:
        docs = handbook(api, search="text")
        question = [{"role": "user", "content": "Where is the SEA?"}]
        _, [root], _, fake = await ask(
            [ANSWER], bot(retrievers=[docs]), stream=True, messages=question
        )
    system = json.loads(fake.requests[0].body)["messages"][0]["content"]
    assert system.startswith('Help. {"id": "the sea#0"')
    assert root["stagelens.stage.retrieval_count"] == 1


async def test_a_reranker_chooses_among_more_documents_than_are_wanted(table: DocumentTable):
    """It is shown the candidates, and its best one alone goes to the model."""
    fill(table, model="")
    scores = {"results": [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]}
    with served(table) as api:
        async with fake_llm(said(scores)) as reranker:
            rerank = {"url": reranker.url + "/v1/rerank", "model": "r", "candidates": 5}
            docs = handbook(api, search="text", top_k=1, rerank=rerank)
            question = [{"role": "user", "content": "the sea"}]
            _, _, proxy, fake = await ask(
                [ANSWER], bot(retrievers=[docs]), stream=True, messages=question
            )
    [asked] = reranker.requests
    shown = json.loads(asked.body)
    assert (shown["documents"], shown["top_n"]) == (["the sea", "the sky"], 1)
    system = json.loads(fake.requests[0].body)["messages"][0]["content"]
    assert system == 'Help. {"id": "the sky#0", "text": "the sky"}'
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval docs")
    assert span.attributes[semconv.RERANK_NS] > 0


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (said({"data": []}), "bad_embedding"),
        (said({"data": [{"index": 0, "embedding": ["x"]}]}), "bad_embedding"),
        (said({}, status=500), "500"),
        (Reply([Hang()]), "timeout"),
    ],
)
async def test_an_embedding_server_that_fails_fails_the_retrieval(
    table: DocumentTable, reply: Reply, kind: str
):
    """The client gets 502, the span the kind."""
    fill(table)
    with served(table) as api:
        async with fake_llm(reply) as engine:
            near = {"kind": "openai", "url": engine.url + "/v1", "model": "e"}
            docs = handbook(api, embedding=near, timeout_s=0.3)
            answer, [root], proxy, _ = await ask([ANSWER], bot(retrievers=[docs]), stream=True)
    assert answer.status_code == 502
    assert root[semconv.STATUS] == "error"
    span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval docs")
    assert span.attributes[semconv.ERROR_TYPE] == kind


async def test_a_collector_with_a_token_gets_it_from_the_environment(
    table: DocumentTable, monkeypatch: pytest.MonkeyPatch
):
    """``headers_env`` names the variable; without it the retrieval fails with 401."""
    fill(table, model="")
    monkeypatch.setenv("API_AUTH", f"Bearer {'t' * 32}")
    question = [{"role": "user", "content": "the sea"}]
    with served(table, token="t" * 32) as api:
        docs = handbook(api, search="text")
        answer, _, proxy, _ = await ask([ANSWER], bot(retrievers=[docs]), messages=question)
        assert answer.status_code == 502
        span = next(s for s in proxy.sink.requests[0] if s.name == "retrieval docs")
        assert span.attributes[semconv.ERROR_TYPE] == "401"
        docs["headers_env"] = {"authorization": "API_AUTH"}
        answer, _, _, _ = await ask(
            [ANSWER], bot(retrievers=[docs]), stream=True, messages=question
        )
    assert answer.status_code == 200


async def test_a_collectors_own_sentence_reaches_the_client(table: DocumentTable):
    """An empty collection is told with the way out."""
    with served(table) as api:
        answer, _, _, _ = await ask([ANSWER], bot(retrievers=[handbook(api, search="text")]))
    assert answer.status_code == 502
    assert "collection 'handbook' is empty" in answer.json()["error"]["message"]


async def test_a_collector_that_is_down_is_skipped_where_the_settings_say_so():
    """The answer comes without documents, and a header names what was left out."""
    docs = handbook("http://127.0.0.1:9", search="text", on_error="skip")
    answer, [root], _, _ = await ask([ANSWER], bot(retrievers=[docs]), stream=True)
    assert answer.headers["x-stagelens-skipped"] == "docs"
    assert root[semconv.STATUS] == "ok"


@pytest.mark.parametrize(
    "question",
    ["the sky " * 20_000, "\ud800 sky", "sky'; DROP TABLE documents; --", "sky {w0:String} \0 \\' %s"],
    ids=["long", "half a character", "sql", "placeholders"],
)
async def test_any_question_finds_its_documents(table: DocumentTable, question: str):
    """Longer than the collector takes, or made to break the statement."""
    fill(table, model="")
    asked = [{"role": "user", "content": question}]
    with served(table) as api:
        docs = handbook(api, search="text")
        answer, _, _, fake = await ask([ANSWER], bot(retrievers=[docs]), stream=True, messages=asked)
    assert answer.status_code == 200, answer.text[:300]
    assert '"text": "the sky"' in json.loads(fake.requests[0].body)["messages"][0]["content"]
