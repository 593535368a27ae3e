"""Any search endpoint that speaks JSON as retriever."""

from __future__ import annotations

import json

from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.documents import Document, at_path, documents_of
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import HttpRetriever
from proxy.pipelines.web import Web
from tracer import semconv
from tracer.clock import Clock


class SearchRetriever:
    """POSTs the query and reads the documents at the paths of its settings."""

    def __init__(self, settings: HttpRetriever, web: Web, clock: Clock) -> None:
        self.name, self.top_k = settings.name, settings.top_k
        self.timeout_s, self.skips = settings.timeout_s, settings.on_error == "skip"
        self._settings = settings
        self._web = web
        self._clock = clock
        self._headers = headers_from_env(settings.headers_env)

    async def find(self, query: str, trace: Trace) -> list[Document]:
        given = self._settings
        body = {**given.body, given.query_field: query, given.top_k_field: given.top_k}
        headers = {**self._headers, "traceparent": trace.traceparent}
        with trace.timed(semconv.SEARCH_NS, self._clock):
            answer = await self._web.ask("POST", given.url, headers, body, given.max_bytes)
        try:
            parsed = json.loads(answer)
        except (ValueError, RecursionError):
            raise StageProblem("bad_answer", "the search gave no JSON") from None
        found = at_path(parsed, given.documents_path)
        return documents_of(found, trace, given.top_k, given.text_path, given.id_path)
