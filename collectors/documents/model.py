"""What is said about documents, the same in process and over HTTP."""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collectors.store.errors import StoreError

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"
MOST_DIMENSIONS: Final = 8192
MOST_CHUNKS: Final = 20_000
MOST_TEXT: Final = 64 * 1024
Finite = Annotated[float, Field(allow_inf_nan=False)]
Vector = Annotated[tuple[Finite, ...], Field(max_length=MOST_DIMENSIONS)]
Collection = Annotated[str, Field(pattern=NAME)]
Source = Annotated[str, Field(max_length=1024, pattern=r"^[^\x00-\x1f]+$")]


class DocumentsError(StoreError):
    """One sentence; ``kind`` is its name over HTTP."""

    kind = "failed"
    status = 500


class BadDocumentsValue(DocumentsError):
    """What was asked cannot be: exit code 2, HTTP 400."""

    kind, status = "bad_value", 400

    def __init__(self, message: str) -> None:
        super().__init__(message, 2)


class NoSuchDocuments(DocumentsError):
    """There is no such collection or document."""

    kind, status = "not_stored", 404


class Unauthorized(DocumentsError):
    """The collector asks for a token, and this is not it."""

    kind, status = "unauthorized", 401


class OtherEmbedding(DocumentsError):
    """The collection was embedded by another model."""

    kind, status = "other_embedding", 409


class DocumentsUnavailable(DocumentsError):
    """The store or the collector gave no answer."""

    kind, status = "unavailable", 503


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Chunk(_Model):
    """A piece of a document; ``vector`` is empty where nothing was embedded."""

    text: str = Field(min_length=1, max_length=MOST_TEXT)
    vector: Vector = ()


class NewDocument(_Model):
    """A whole document; one with the same ``source`` in ``collection`` is replaced."""

    collection: Collection
    source: Source
    model: str = Field(default="", max_length=200, description="what made the vectors; empty: none")
    chunks: tuple[Chunk, ...] = Field(min_length=1, max_length=MOST_CHUNKS)

    @model_validator(mode="after")
    def _same_length(self) -> NewDocument:
        lengths = {len(chunk.vector) for chunk in self.chunks}
        if len(lengths) > 1:
            raise ValueError("all vectors of a document must have the same length")
        if bool(self.model) != (lengths != {0}):
            raise ValueError("vectors come with the name of their model, and the other way round")
        if any(chunk.vector and not any(chunk.vector) for chunk in self.chunks):
            raise ValueError("a vector of zeros has no direction")
        return self

    @property
    def dimensions(self) -> int:
        return len(self.chunks[0].vector)


class Added(_Model):
    """How many chunks there are now, and whether an older form went."""

    chunks: int
    replaced: bool


class Removed(_Model):
    documents: int
    chunks: int


class Listed(_Model):
    """One document as it is stored."""

    collection: str
    source: str
    chunks: int
    characters: int
    model: str
    dimensions: int
    added_unix_ms: int


class Listing(_Model):
    version: int = 1
    documents: tuple[Listed, ...]


class Search(_Model):
    """A question: ``vector`` finds by meaning, ``text`` by words, both together by both ranks."""

    collection: Collection
    text: str = Field(default="", max_length=MOST_TEXT)
    vector: Vector = ()
    model: str = Field(default="", max_length=200, description="what made the vector")
    top_k: int = Field(default=4, ge=1, le=200)

    @model_validator(mode="after")
    def _something(self) -> Search:
        if not self.text and not self.vector:
            raise ValueError("a search needs text or a vector")
        if self.vector and not (self.model and math.hypot(*self.vector)):
            raise ValueError("a vector needs its model's name and a direction")
        return self


class Hit(_Model):
    """A chunk that was found. ``score``: of the ranks (both), 1 - cosine distance, or BM25."""

    id: str = Field(description="source#chunk")
    source: str
    chunk: int
    text: str
    score: float


class Found(_Model):
    """The best first."""

    hits: tuple[Hit, ...]
