"""The one answer that the client of a pipeline gets, made of many rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.middleware import Send
from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.text import encoded

_ONCE = ("id", "created")
"""Members that all chunks of a stream share; the first that is told holds."""
STREAM = b"text/event-stream; charset=utf-8"


class Outward:
    """Writes to the client; what it sends first decides whether it is a stream."""

    def __init__(self, send: Send, model: str) -> None:
        self._send = send
        self._model = model
        self._skipped: list[str] = []
        self._retry_after: bytes | None = None
        self._first: dict[str, object] = {}
        self._role_sent = False
        self.begun = False

    def note_skipped(self, retriever: str) -> None:
        """Said in the header ``x-stagelens-skipped``, before the answer begins."""
        self._skipped.append(retriever)

    def _headers(self, kind: bytes, size: int | None) -> list[tuple[bytes, bytes]]:
        made = [(b"content-type", kind)]
        if size is not None:
            made.append((b"content-length", str(size).encode()))
        if self._retry_after is not None:
            made.append((b"retry-after", self._retry_after))
        if self._skipped:
            made.append((b"x-stagelens-skipped", ", ".join(self._skipped).encode("ascii", "replace")))
        return made

    async def _start(self, status: int, kind: bytes, size: int | None) -> None:
        self.begun = True
        headers = self._headers(kind, size)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def whole(self, status: int, body: Mapping[str, Any]) -> None:
        """The answer as one JSON document."""
        data = encoded(body)
        await self._start(status, b"application/json", len(data))
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def chunk(self, chunk: dict[str, Any]) -> None:
        """One chunk of the stream, under the id of the first one and the pipeline's name."""
        if not self.begun:
            await self._start(200, STREAM, None)
        for name in _ONCE:
            if self._first.get(name) is None:
                self._first[name] = chunk.get(name)
        first = {name: value for name, value in self._first.items() if value is not None}
        given = {name: value for name, value in chunk.items() if name not in _ONCE}
        await self._part({**given, **first, "model": self._model})

    def role_due(self) -> bool:
        """True once: only the first round's role chunk goes on."""
        due, self._role_sent = not self._role_sent, True
        return due

    async def _part(self, body: Mapping[str, Any]) -> None:
        data = b"data: " + encoded(body) + b"\n\n"
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def done(self) -> None:
        """The stream is whole, if only of nothing."""
        if not self.begun:
            await self._start(200, STREAM, None)
        data = b"data: [DONE]\n\n"
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def fail(self, problem: PipelineProblem) -> None:
        """An error answer, or an error event in a stream that has begun."""
        error = {"message": problem.text, "type": problem.kind, "param": None,
                 "code": problem.status}  # fmt: skip
        if not self.begun:
            self._retry_after = problem.retry_after
            await self.whole(problem.status, {"error": error})
            return
        await self._part({"error": error})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
