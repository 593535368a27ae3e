"""Embeddings of any server that speaks OpenAI's ``/v1/embeddings``: an engine or a provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proxy.pipelines.callables import headers_from_env
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.settings import EndpointEmbedding
from proxy.pipelines.web import Web

MOST_BYTES = 64 << 20


class EndpointEmbedder:
    """POSTs texts in batches to ``{url}/embeddings``."""

    def __init__(self, settings: EndpointEmbedding, web: Web) -> None:
        self.model = settings.model
        self._settings = settings
        self._web = web
        self._headers = headers_from_env(settings.headers_env)

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    async def embed(self, texts: Sequence[str], traceparent: str = "") -> list[list[float]]:
        made: list[list[float]] = []
        for at in range(0, len(texts), self._settings.batch):
            made += await self._batch(list(texts[at : at + self._settings.batch]), traceparent)
        return made

    async def _batch(self, texts: list[str], traceparent: str) -> list[list[float]]:
        given = self._settings
        headers = {**self._headers, **({"traceparent": traceparent} if traceparent else {})}
        body: dict[str, Any] = {"model": given.model, "input": texts, "encoding_format": "float"}
        if given.dimensions is not None:
            body["dimensions"] = given.dimensions
        url = given.url.rstrip("/") + "/embeddings"
        answer = await self._web.ask("POST", url, headers, body, MOST_BYTES)
        try:
            data = json.loads(answer)["data"]
            rows = sorted(data, key=lambda one: int(one["index"]))
            vectors = [[float(number) for number in one["embedding"]] for one in rows]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise StageProblem("bad_embedding", "the embedding server gave no vectors") from None
        if len(vectors) != len(texts) or not all(vectors):
            raise StageProblem("bad_embedding", "the embedding server gave too few vectors")
        return vectors
