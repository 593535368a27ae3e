"""The ``documents`` table: add, list, remove, and search by meaning, by words, or both.

Brute force on purpose: the cosine distance of each vector of a collection, and BM25 over
the chunks that hold an asked word (a token Bloom filter skips the rest). It needs nothing
newer than ClickHouse 24.8.
"""

# ruff: noqa: S608  only numbered parameters of our own making are put into statements
from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from collectors.documents.model import (
    Added,
    BadDocumentsValue,
    DocumentsError,
    DocumentsUnavailable,
    Found,
    Hit,
    Listed,
    Listing,
    NewDocument,
    NoSuchDocuments,
    OtherEmbedding,
    Removed,
    Search,
)
from collectors.documents.words import asked_words, words_of
from collectors.store.client import Store
from collectors.store.errors import StoreError
from tracer.clock import Clock

TABLE: Final = "documents"
COLUMNS: Final = (
    "Collection", "Source", "Chunk", "Version", "AddedAt", "Text", "Words", "WordCount",
    "EmbeddingModel", "Embedding",
)  # fmt: skip
FUSION: Final = 60
"""Reciprocal rank fusion: a hit at rank r of one list weighs 1 / (60 + r)."""
CANDIDATES: Final = 4
"""Times ``top_k`` are taken of each list before they are put together."""
BM25_K1: Final = 1.2
BM25_B: Final = 0.75
MOST_LISTED: Final = 10_000

Row = dict[str, Any]


class Documents(Protocol):
    """What the commands and the HTTP routes ask. Errors are ``DocumentsError``."""

    def add(self, document: NewDocument) -> Added: ...

    def listing(self, collection: str | None = None) -> Listing: ...

    def remove(self, collection: str, source: str | None = None) -> Removed: ...

    def search(self, asked: Search) -> Found: ...


class DocumentTable:
    """Documents in an open, migrated store. Thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._writing = threading.Lock()
        self._name = f"`{store.database}`.{TABLE}"
        self._rows = store.held(TABLE)

    def add(self, document: NewDocument) -> Added:
        """Store a document; its new form can be found before the old one goes.

        Raises:
            OtherEmbedding: the collection holds other documents with another model's vectors.
            DocumentsUnavailable: the store does not take it.
        """
        with self._writing:
            self._check_model(document)
            version = self._clock.unix_ns()
            self._insert(document, version)
            given: Row = {"collection": document.collection, "source": document.source,
                          "version": version}  # fmt: skip
            where = (
                "Collection = {collection:String} AND Source = {source:String} "
                "AND Version != {version:UInt64}"
            )
            older = self._query(f"SELECT count() AS n FROM {self._name} WHERE {where}", given)
            replaced = bool(older[0]["n"])
            if replaced:
                self._command(f"DELETE FROM {self._rows} WHERE {where}", given)
        return Added(chunks=len(document.chunks), replaced=replaced)

    def listing(self, collection: str | None = None) -> Listing:
        """All documents (at most ``MOST_LISTED``), or those of one collection."""
        rows = self._query(
            "SELECT Collection AS c, Source AS s, uniqExact(Chunk) AS n, sum(lengthUTF8(Text)) AS "
            "chars, any(EmbeddingModel) AS m, any(length(Embedding)) AS d, "
            f"toUnixTimestamp64Milli(max(AddedAt)) AS at FROM {self._name} "
            "WHERE {collection:String} = '' OR Collection = {collection:String} "
            "GROUP BY Collection, Source ORDER BY Collection, Source LIMIT {most:UInt32}",
            {"collection": collection or "", "most": MOST_LISTED},
        )
        listed = (
            Listed(collection=r["c"], source=r["s"], chunks=r["n"], characters=r["chars"],
                   model=r["m"], dimensions=r["d"], added_unix_ms=r["at"])
            for r in rows
        )  # fmt: skip
        return Listing(documents=tuple(listed))

    def remove(self, collection: str, source: str | None = None) -> Removed:
        """Take a document out, or the whole collection.

        Raises:
            NoSuchDocuments: there is none.
        """
        given = {"collection": collection, "source": source or ""}
        where = (
            "Collection = {collection:String} AND ({source:String} = '' OR Source = {source:String})"
        )
        with self._writing:
            [there] = self._query(
                f"SELECT count() AS n, uniqExact(Source) AS s FROM {self._name} WHERE {where}", given
            )
            if not there["n"]:
                what = f"document {source!r} is not in" if source else "nothing is in"
                raise NoSuchDocuments(
                    f"{what} collection {collection!r}: `stagelens documents list` shows what is"
                )
            self._command(f"DELETE FROM {self._rows} WHERE {where}", given)
        return Removed(documents=there["s"], chunks=there["n"])

    def search(self, asked: Search) -> Found:
        """The best chunks.

        Raises:
            NoSuchDocuments: the collection is empty.
            OtherEmbedding: the vector is of another model than the collection's.
            DocumentsUnavailable: the store does not answer.
        """
        words = asked_words(asked.text)
        facts = self._facts(asked.collection, words)
        lists = []
        wanted = asked.top_k * CANDIDATES if asked.vector and words else asked.top_k
        if asked.vector:
            _check_vector(asked, facts)
            lists.append(self._by_vector(asked, wanted))
        if words:
            lists.append(self._by_words(asked.collection, words, facts, wanted))
        return Found(hits=tuple((lists[0] if len(lists) == 1 else _fused(lists))[: asked.top_k]))

    def _check_model(self, document: NewDocument) -> None:
        rows = self._query(
            f"SELECT DISTINCT EmbeddingModel AS m, length(Embedding) AS d FROM {self._name} "
            "WHERE Collection = {collection:String} AND Source != {source:String}",
            {"collection": document.collection, "source": document.source},
        )
        for row in rows:
            if (row["m"], row["d"]) != (document.model, document.dimensions):
                raise OtherEmbedding(
                    f"collection {document.collection!r} holds {_embedding(row['m'], row['d'])} and "
                    f"document {document.source!r} {_embedding(document.model, document.dimensions)}: "
                    "give the same embedding, or another --collection"
                )

    def _insert(self, document: NewDocument, version: int) -> None:
        added = datetime.fromtimestamp(version / 1e9, UTC)
        rows = []
        for number, chunk in enumerate(document.chunks):
            words = words_of(chunk.text)
            rows.append(
                (document.collection, document.source, number, version, added, chunk.text,
                 " ".join(words), len(words), document.model, list(chunk.vector))
            )  # fmt: skip
        try:
            self._store.insert(TABLE, COLUMNS, rows, f"documents-{uuid.uuid4().hex}")
        except StoreError as problem:
            raise DocumentsUnavailable(f"the document was not stored: {problem}") from problem

    def _facts(self, collection: str, words: Sequence[str]) -> Row:
        """Chunks, their mean length, the embedding, and for each word how many chunks hold it."""
        holding = "".join(
            f", countIf(hasToken(Words, {{w{i}:String}})) AS d{i}" for i in range(len(words))
        )
        [facts] = self._query(
            "SELECT count() AS n, avg(WordCount) AS mean, any(EmbeddingModel) AS m, "
            f"any(length(Embedding)) AS d{holding} FROM {self._name} "
            "WHERE Collection = {collection:String}",
            {"collection": collection, **_numbered("w", words)},
        )
        if not facts["n"]:
            raise NoSuchDocuments(
                f"collection {collection!r} is empty: fill it with `stagelens documents add`"
            )
        return facts

    def _by_vector(self, asked: Search, wanted: int) -> list[Hit]:
        rows = self._query(
            "SELECT Source AS s, Chunk AS c, Text AS t, 1 - cosineDistance(Embedding, "
            f"{{vector:Array(Float32)}}) AS score FROM {self._name} "
            "WHERE Collection = {collection:String} AND EmbeddingModel = {model:String} "
            "ORDER BY score DESC, s, c LIMIT {wanted:UInt32}",
            {"vector": list(asked.vector), "collection": asked.collection, "model": asked.model,
             "wanted": wanted},
        )  # fmt: skip
        return _hits(rows)

    def _by_words(
        self, collection: str, words: Sequence[str], facts: Row, wanted: int
    ) -> list[Hit]:
        """BM25; a word that no chunk holds says nothing."""
        held = [(w, int(facts[f"d{i}"])) for i, w in enumerate(words) if facts[f"d{i}"]]
        if not held:
            return []
        total = int(facts["n"])
        weights = [math.log(1 + (total - d + 0.5) / (d + 0.5)) for _, d in held]
        places = range(len(held))
        score = " + ".join(
            f"{{i{i}:Float64}} * countEqual(cut, {{w{i}:String}}) * {BM25_K1 + 1} / "
            f"(countEqual(cut, {{w{i}:String}}) + damp)"
            for i in places
        )
        some = " OR ".join(f"hasToken(Words, {{w{i}:String}})" for i in places)
        rows = self._query(
            f"WITH splitByChar(' ', Words) AS cut, {BM25_K1} * ({1 - BM25_B} + {BM25_B} * WordCount "
            f"/ {{mean:Float64}}) AS damp SELECT Source AS s, Chunk AS c, Text AS t, {score} AS score "
            f"FROM {self._name} WHERE Collection = {{collection:String}} AND ({some}) "
            "ORDER BY score DESC, s, c LIMIT {wanted:UInt32}",
            {"collection": collection, "mean": float(facts["mean"]) or 1.0, "wanted": wanted,
             **_numbered("w", [w for w, _ in held]), **_numbered("i", weights)},
        )  # fmt: skip
        return _hits(rows)

    def _query(self, sql: str, params: Row) -> list[Row]:
        try:
            return self._store.query(sql, params)
        except StoreError as problem:
            raise _told(problem) from problem

    def _command(self, sql: str, params: Row) -> None:
        try:
            self._store.command(sql, params)
        except StoreError as problem:
            raise _told(problem) from problem


def _told(problem: StoreError) -> DocumentsError:
    if isinstance(problem, DocumentsError):
        return problem
    return DocumentsUnavailable(f"the documents cannot be read: {problem}")


def _numbered(letter: str, values: Iterable[object]) -> Row:
    return {f"{letter}{i}": value for i, value in enumerate(values)}


def _embedding(model: str, dimensions: int) -> str:
    return f"vectors of {model} ({dimensions} numbers)" if model else "no vectors"


def _check_vector(asked: Search, facts: Row) -> None:
    if not facts["m"]:
        raise BadDocumentsValue(
            f"collection {asked.collection!r} holds no vectors: search it by text, or add its "
            "documents again with an embedding"
        )
    if (asked.model, len(asked.vector)) != (facts["m"], facts["d"]):
        raise OtherEmbedding(
            f"collection {asked.collection!r} holds {_embedding(facts['m'], facts['d'])} and the "
            f"question is {_embedding(asked.model, len(asked.vector))}: use the same embedding"
        )


def _hits(rows: Sequence[Row]) -> list[Hit]:
    return [
        Hit(id=f"{r['s']}#{r['c']}", source=r["s"], chunk=r["c"], text=r["t"], score=r["score"])
        for r in rows
    ]


def _fused(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion; what stands high in both lists comes first."""
    scores: dict[str, float] = {}
    known: dict[str, Hit] = {}
    for hits in lists:
        for rank, hit in enumerate(hits, 1):
            scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (FUSION + rank)
            known[hit.id] = hit
    order = sorted(scores, key=lambda name: (-scores[name], name))
    return [known[name].model_copy(update={"score": scores[name]}) for name in order]
