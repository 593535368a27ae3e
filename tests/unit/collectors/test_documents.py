"""Documents in a real store: added, replaced, found by meaning and by words, removed."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request

import pytest
from fastapi.routing import APIRoute

from collectors.documents.client import DocumentsClient
from collectors.documents.http import PATH, add_documents
from collectors.documents.model import (
    BadDocumentsValue,
    Chunk,
    DocumentsUnavailable,
    NewDocument,
    NoSuchDocuments,
    OtherEmbedding,
    Search,
    Unauthorized,
)
from collectors.documents.table import DocumentTable
from collectors.documents.words import asked_words, words_of
from collectors.store.client import Store
from dashboards.api import build_api
from tests.support.clock import FakeClock
from tests.support.documents import served

AT = 1_767_268_800_000_000_000


@pytest.fixture
def table(store: Store) -> DocumentTable:
    return DocumentTable(store, TickingClock())


class TickingClock(FakeClock):
    """Each look at the wall clock is a nanosecond later."""

    def __init__(self) -> None:
        super().__init__(unix_ns=AT)
        self._looks = 0

    def unix_ns(self) -> int:
        self._looks += 1
        return AT + self._looks


def document(source: str, *chunks: tuple[str, tuple[float, ...]], model: str = "m") -> NewDocument:
    made = tuple(Chunk(text=text, vector=vector) for text, vector in chunks)
    return NewDocument(collection="c", source=source, model=model, chunks=made)


def plain(source: str, *texts: str) -> NewDocument:
    return document(source, *((text, ()) for text in texts), model="")


def found(table: DocumentTable, **asked: object) -> list[str]:
    given = {"collection": "c", "top_k": 10, **asked}
    return [hit.id for hit in table.search(Search.model_validate(given)).hits]


def test_the_nearest_vectors_come_first(table: DocumentTable):
    """Cosine distance decides, not length; the score is one less the distance."""
    table.add(document("a", ("east", (10.0, 0.0)), ("north", (0.0, 0.1))))
    table.add(document("b", ("north-east", (1.0, 1.0))))
    asked = Search(collection="c", vector=(1.0, 0.1), model="m", top_k=10)
    hits = table.search(asked).hits
    assert [hit.id for hit in hits] == ["a#0", "b#0", "a#1"]
    assert hits[0].score == pytest.approx(1 / 1.01**0.5, abs=1e-5)
    assert found(table, vector=(1.0, 0.1), model="m", top_k=2) == ["a#0", "b#0"]


def test_rare_words_and_short_texts_weigh_more(table: DocumentTable):
    """BM25: against the formula computed here; a chunk without an asked word is not found."""
    texts = {"a": "the cat and the dog", "b": "the cat", "c": "the bird sings", "d": "Çelik kedi"}
    for source, text in texts.items():
        table.add(plain(source, text))
    cut = {source: text.lower().split() for source, text in texts.items()}
    mean = sum(map(len, cut.values())) / len(cut)

    def bm25(words: list[str], asked: list[str]) -> float:
        score = 0.0
        for word in asked:
            held = sum(word in other for other in cut.values())
            idf = math.log(1 + (len(cut) - held + 0.5) / (held + 0.5))
            tf = words.count(word)
            score += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(words) / mean))
        return score

    hits = table.search(Search(collection="c", text="The CAT?", top_k=10)).hits
    expected = {s: bm25(words, ["the", "cat"]) for s, words in cut.items()}
    assert [hit.source for hit in hits] == ["b", "a", "c"]
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.source], rel=1e-4)
    assert found(table, text="ÇELIK") == ["d#0"]
    assert found(table, text="nothing of this") == []


def test_both_ways_together_put_first_what_stands_high_in_both(table: DocumentTable):
    """Reciprocal rank fusion: first by words and second by vector beats first by vector alone."""
    table.add(document("a", ("red apple", (1.0, 0.0))))
    table.add(document("b", ("green pear tree", (0.9, 0.1))))
    table.add(document("c", ("blue sky", (0.0, 1.0))))
    asked = {"vector": (1.0, 0.0), "model": "m", "text": "green pear"}
    assert found(table, **asked)[0] == "b#0"
    assert set(found(table, **asked)) == {"a#0", "b#0", "c#0"}
    assert found(table, **asked, top_k=1) == ["b#0"]


def test_a_document_that_is_added_again_is_replaced_whole(table: DocumentTable):
    """The longer old form leaves nothing behind, and the other documents stay."""
    assert not table.add(plain("a", "one", "two", "three")).replaced
    table.add(plain("b", "other"))
    assert table.add(plain("a", "four")).replaced
    assert found(table, text="one two three") == []
    assert found(table, text="four other") == ["a#0", "b#0"]
    [a, b] = table.listing().documents
    assert (a.source, a.chunks, a.characters, a.model, a.dimensions) == ("a", 1, 4, "", 0)
    assert a.added_unix_ms == AT // 10**6
    assert table.listing("none").documents == ()
    assert b.source == "b"


def test_what_is_removed_is_found_no_more(table: DocumentTable):
    """One document or the whole collection; what is not there is said."""
    for source in ("a", "b", "c"):
        table.add(plain(source, "word"))
    assert table.remove("c", "a").chunks == 1
    assert found(table, text="word") == ["b#0", "c#0"]
    with pytest.raises(NoSuchDocuments, match="document 'a' is not in collection 'c'"):
        table.remove("c", "a")
    gone = table.remove("c")
    assert (gone.documents, gone.chunks) == (2, 2)
    with pytest.raises(NoSuchDocuments, match="is empty: fill it"):
        found(table, text="word")


def test_one_collection_has_one_embedding(table: DocumentTable):
    """Another model is refused when adding and when asking, and both are named."""
    table.add(document("a", ("x", (1.0, 0.0))))
    with pytest.raises(OtherEmbedding, match=r"vectors of m \(2 numbers\).*vectors of n \(2"):
        table.add(document("b", ("y", (1.0, 0.0)), model="n"))
    with pytest.raises(OtherEmbedding, match="no vectors"):
        table.add(plain("b", "y"))
    with pytest.raises(OtherEmbedding, match=r"3 numbers"):
        found(table, vector=(1.0, 0.0, 0.0), model="m")
    assert not table.add(document("z", ("y", (0.0, 1.0)))).replaced
    table.remove("c", "z")
    assert table.add(document("a", ("y", (1.0, 0.0, 0.0)), model="n")).replaced
    table.remove("c")
    table.add(plain("a", "y"))
    with pytest.raises(BadDocumentsValue, match="holds no vectors"):
        found(table, vector=(1.0,), model="m")


@pytest.mark.parametrize("text", ["it's a \"test\" \\ ' {w0:String} %", "; DROP TABLE x", "a\0b"])
def test_texts_and_questions_are_data(table: DocumentTable, text: str):
    """Quotes, braces and statements come back as they were."""
    source = text.replace("\0", "")
    table.add(plain(source, text))
    [hit] = table.search(Search(collection="c", text=text, top_k=1)).hits
    assert (hit.text, hit.source) == (text, source)
    assert table.remove("c", source).chunks == 1


def test_words_are_cut_as_clickhouse_cuts_them():
    """No word holds a character at which ``hasToken`` would cut."""
    assert words_of("Don't stop_me: Straße, naïve ﬁne 3.14") == [
        "don", "t", "stop", "me", "strasse", "naïve", "fine", "3", "14",
    ]  # fmt: skip
    every = "".join(map(chr, range(0x250))) + " ".join(map(chr, range(0x250)))
    for word in words_of(every):
        assert all(c.isalnum() for c in word), word
    assert len(asked_words(" ".join(map(str, range(99))))) == 32


def test_over_http_the_same_is_said(table: DocumentTable):
    """Answers and errors, to the word, are those of the table itself."""
    with served(table) as url:
        there = DocumentsClient(url)
        assert there.add(document("a b&c", ("x", (1.0, 0.0)))).chunks == 1
        assert there.listing("c") == table.listing("c")
        asked = Search(collection="c", text="x", vector=(1.0, 0.0), model="m")
        assert there.search(asked) == table.search(asked)
        for question, kind in (
            (lambda d: d.add(plain("b", "y")), OtherEmbedding),
            (lambda d: d.remove("c", "nope"), NoSuchDocuments),
            (lambda d: d.search(Search(collection="none", text="x")), NoSuchDocuments),
        ):
            said = []
            for one in (table, there):
                with pytest.raises(kind) as refused:
                    question(one)
                said.append(str(refused.value))
            assert said[0] == said[1]
        assert there.remove("c", "a b&c").documents == 1
    with pytest.raises(DocumentsUnavailable, match="no collector answers"):
        there.listing()


def test_an_api_with_a_token_asks_the_documents_client_for_it(table: DocumentTable):
    """Without it one sentence says so, and nothing is stored; with it all is as before."""
    with served(table, token="t" * 32) as url:
        with pytest.raises(Unauthorized, match="asks for a token"):
            DocumentsClient(url).add(plain("a", "x"))
        assert table.listing().documents == ()
        assert DocumentsClient(url, token="t" * 32).add(plain("a", "x")).chunks == 1


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/plain", b"{}", "content-type application/json"),
        ("application/json", b"{", "Invalid JSON"),
        ("application/json", b'{"collection": "c"}', "source: Field required"),
        ("application/json", b'{"collection": "a;b", "source": "s", "chunks": [{"text": "x"}]}',
         "collection: String should match"),
        ("application/json",
         b'{"collection": "c", "source": "s", "model": "m", "chunks": [{"text": "x", "vector": [0, 0]}]}',
         "a vector of zeros"),
        ("application/json",
         b'{"collection": "c", "source": "s", "model": "m", "chunks": [{"text": "x", "vector": [NaN]}]}',
         "finite"),
    ],
)  # fmt: skip
def test_a_bad_body_is_answered_with_a_sentence(
    table: DocumentTable, kind: str, body: bytes, words: str
):
    """400, one sentence, and nothing is stored; a form of another site is no JSON."""
    with served(table) as url:
        request = urllib.request.Request(url + PATH, body, {"Content-Type": kind}, method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        with refused.value as answer:
            assert answer.code == 400
            told = json.loads(answer.read())
    assert told["error"] == "bad_value"
    assert words in told["detail"]
    assert table.listing().documents == ()


@pytest.mark.parametrize(("method", "query"), [("DELETE", "collection=c&sorce=a"), ("GET", "colection=c")])
def test_a_misspelt_parameter_removes_nothing(table: DocumentTable, method: str, query: str):
    """Without its source a whole collection would be meant: the name is refused, and all is there."""
    table.add(plain("a", "one"))
    table.add(plain("b", "two"))
    with served(table) as url:
        asked = urllib.request.Request(f"{url}{PATH}?{query}", method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10)
        with refused.value:
            told = json.load(refused.value)
    assert (refused.value.code, told["error"]) == (400, "bad_value")
    assert "is not known here: give collection" in told["detail"]
    assert len(table.listing("c").documents) == 2


def test_a_store_that_is_gone_is_told(store: Store):
    """One sentence that says what was asked of it."""
    table = DocumentTable(store, TickingClock())
    store.command(f"DROP TABLE {store.database}.documents")
    with pytest.raises(DocumentsUnavailable, match="cannot be read"):
        table.listing()


def test_the_read_api_only_reads_with_documents_beside_it(table):
    """Under /api/v1 every route answers GET alone, and the OpenAPI document lists no other."""
    app = build_api(table._store, None, FakeClock(unix_ns=AT))
    add_documents(app, table)
    routes = [one for one in app.routes if isinstance(one, APIRoute)]
    read = {one.path: one.methods for one in routes if one.path.startswith("/api/")}
    assert len(read) > 10
    assert {frozenset(methods) for methods in read.values()} == {frozenset({"GET"})}
    changing = {one.path for one in routes if one.methods - {"GET"}}
    assert changing == {PATH, f"{PATH}/search"}
    assert {method for path in app.openapi()["paths"].values() for method in path} == {"get"}
