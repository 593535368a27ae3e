"""The documents of the collector's store as retriever: by meaning, by words, or by both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.documents import Document
from proxy.pipelines.embed.kit import Embeds
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import DocumentsRetriever
from proxy.pipelines.text import clean
from proxy.pipelines.web import Web
from tracer import semconv
from tracer.clock import Clock

PATH = "/documents/v1/search"
LONGEST = 64 * 1024
"""Characters that the collector takes of a question; it looks for its first words alone."""


@dataclass(frozen=True, slots=True)
class CollectorApi:
    """The collector's API; ``token`` is what it asks for, if anything."""

    url: str = ""
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


NO_COLLECTOR = CollectorApi()
"""None is started here: each retriever must name one."""


class StoreRetriever:
    """Embeds the query where it is needed and asks the collector's API.

    The proxy opens no store: an embedded one belongs to the collector's process, and one
    way for both kinds keeps the schema and the store's password where they are.
    """

    def __init__(
        self,
        settings: DocumentsRetriever,
        api: CollectorApi,
        embeds: Embeds | None,
        web: Web,
        clock: Clock,
    ) -> None:
        """``embeds`` is None for a search by words alone."""
        self.name, self.top_k = settings.name, settings.top_k
        self.timeout_s, self.skips = settings.timeout_s, settings.on_error == "skip"
        self._settings = settings
        self._url = api.url.rstrip("/") + PATH
        self._headers = {**api.headers, **headers_from_env(settings.headers_env)}
        self._embeds = embeds
        self._web = web
        self._clock = clock

    async def find(self, query: str, trace: Trace) -> list[Document]:
        given = self._settings
        body: dict[str, Any] = {"collection": given.collection, "top_k": given.top_k}
        if not query.strip():
            return []
        if given.search != "vector":
            body["text"] = query[:LONGEST]
        if self._embeds is not None:
            with trace.timed(semconv.EMBED_NS, self._clock):
                [vector] = await self._embeds.embed([query], trace.traceparent)
            body |= {"vector": vector, "model": self._embeds.model}
        headers = {**self._headers, "traceparent": trace.traceparent}
        with trace.timed(semconv.SEARCH_NS, self._clock):
            answer = await self._web.ask(
                "POST", self._url, headers, body, given.max_bytes, telling=True
            )
        return _documents(answer)


def _documents(answer: bytes) -> list[Document]:
    try:
        hits = json.loads(answer)["hits"]
        return [Document(clean(str(hit["text"])), clean(str(hit["id"]))) for hit in hits]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StageProblem("bad_answer", "the collector gave no documents") from None
