"""A second look at what a retriever found, by a `/v1/rerank` endpoint."""

from __future__ import annotations

from typing import Any

from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.documents import Document, Retrieves
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import Rerank
from proxy.pipelines.text import strict
from proxy.pipelines.web import Web
from tracer import semconv
from tracer.clock import Clock

MOST_BYTES = 4 << 20


class Reranked:
    """``inner`` finds more than is wanted; the endpoint says which of it is best."""

    def __init__(
        self, inner: Retrieves, settings: Rerank, top_k: int, web: Web, clock: Clock
    ) -> None:
        self.name, self.top_k = inner.name, top_k
        self.timeout_s, self.skips = inner.timeout_s, inner.skips
        self._inner = inner
        self._settings = settings
        self._web = web
        self._clock = clock
        self._headers = headers_from_env(settings.headers_env)

    async def find(self, query: str, trace: Trace) -> list[Document]:
        found = await self._inner.find(query, trace)
        if len(found) < 2:
            return found[: self.top_k]
        body = {"model": self._settings.model, "query": query, "top_n": self.top_k,
                "documents": [one.text for one in found]}  # fmt: skip
        headers = {**self._headers, "traceparent": trace.traceparent}
        with trace.timed(semconv.RERANK_NS, self._clock):
            try:
                answer = await self._web.ask("POST", self._settings.url, headers, body, MOST_BYTES)
            except StageProblem as problem:
                raise StageProblem(problem.kind, f"its reranker: {problem.text}") from None
        return [found[place] for place in _order(answer, len(found))][: self.top_k]


def _order(answer: bytes, count: int) -> list[int]:
    """Places of the documents, the best first, by the scores that the endpoint gave; those without
    one stand behind, as they were found.
    """
    try:
        scored = [_score(one) for one in strict(answer.decode())["results"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StageProblem("bad_answer", "the reranker gave no scores") from None
    places = [place for _, place in sorted(scored, key=lambda one: (-one[0], one[1]))]
    if len(set(places)) != len(places) or not all(0 <= place < count for place in places):
        raise StageProblem("bad_answer", "the reranker named documents that it was not given")
    return places + [place for place in range(count) if place not in set(places)]


def _score(result: dict[str, Any]) -> tuple[float, int]:
    """A document's score and place; ValueError where either is no number of its kind."""
    score, place = result["relevance_score"], result["index"]
    if type(score) not in (int, float) or type(place) is not int:
        raise ValueError("no number")
    return score, place
