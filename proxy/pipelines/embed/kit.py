"""Embedders by their settings, started and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from proxy.pipelines.embed.endpoint import EndpointEmbedder
from proxy.pipelines.embed.local import LocalEmbedder
from proxy.pipelines.settings import EndpointEmbedding, LocalEmbedding
from proxy.pipelines.web import Web

Embedding = LocalEmbedding | EndpointEmbedding
Vectors = list[list[float]]


class Embeds(Protocol):
    """Makes vectors; ``model`` is the name that is kept beside them."""

    model: str

    async def embed(self, texts: Sequence[str], traceparent: str = "") -> Vectors:
        """One vector a text, in order; raises :class:`StageProblem`."""
        ...

    async def start(self) -> None:
        """Raises :class:`ProxyError` where the model or a secret is not there."""
        ...

    async def close(self) -> None: ...


def embedder(settings: Embedding, web: Web) -> Embeds:
    """The embedder of ``settings``; ``web`` must be started before it is used."""
    if isinstance(settings, LocalEmbedding):
        return LocalEmbedder(settings)
    return EndpointEmbedder(settings, web)


@asynccontextmanager
async def started(settings: Embedding) -> AsyncIterator[Embeds]:
    """An embedder of its own, for use outside the proxy."""
    web = Web()
    await web.start()
    made = embedder(settings, web)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
        await web.close()
