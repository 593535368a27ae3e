"""What can go wrong in a pipeline, by kind: kinds stand in spans, texts go to the client."""

from __future__ import annotations


class StageProblem(Exception):
    """A retrieval or a tool call failed; ``kind`` is of few values and goes to its span.

    The text may be shown to the model and the client: it quotes no secret.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class PipelineProblem(Exception):
    """The request fails: a status, an error type, one sentence; when to ask again, if it is known."""

    def __init__(
        self, status: int, kind: str, text: str, retry_after: bytes | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        self.kind = kind
        self.text = text
