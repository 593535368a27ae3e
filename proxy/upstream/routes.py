"""The paths worth a name of their own."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.recorder import operation_of


@dataclass(frozen=True, slots=True)
class Route:
    """A path worth a name of its own; ``reads``: answers on it are read for tokens and usage."""

    path: str
    reads: bool = True


ROUTES = {
    path: Route(path, reads)
    for path, reads in (
        ("/v1/chat/completions", True), ("/v1/completions", True), ("/v1/responses", True),
        ("/v1/messages", True), ("/v1/embeddings", True), ("/v1/rerank", True),
        ("/v1/messages/count_tokens", False), ("/v1/models", False),
        ("/v1/audio/transcriptions", True), ("/v1/audio/translations", True),
        ("/v1/audio/speech", False),
    )
}  # fmt: skip


def route_of(path: str) -> Route | None:
    """The route of ``path``; Azure's deployments share one, unknown paths have none."""
    if (known := ROUTES.get(path)) is not None:
        return known
    if operation_of(path):
        return Route("/openai/deployments/{deployment}/" + path.split("/", 4)[4])
    return None
