"""The ASGI application that offers pipelines as models beside those of the application inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from proxy.middleware import App, Message, Receive, Scope, Send
from proxy.pipelines.inner import inner_scope
from proxy.pipelines.loop import Loop, Pipeline
from proxy.pipelines.outward import Outward
from proxy.pipelines.problems import PipelineProblem
from proxy.pipelines.runs import Runs
from proxy.request.live import CURRENT
from proxy.stream.clocks import StreamClocks
from proxy.upstream.answers import Refusal, answer
from proxy.upstream.body import read_asked
from proxy.upstream.decode import Unreadable, decoder_for
from proxy.upstream.ending import drain
from proxy.upstream.headers import value_of
from tracer.clock import Clock
from tracer.ids import IdSource

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
NAMING = frozenset({
    CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/pooling",
    "/classify", "/tokenize", "/detokenize", "/v1/moderations", "/v1/audio/speech",
    "/v1/images/generations",
})  # fmt: skip
"""Routes whose requests name a model in JSON; each also with a slash behind it."""
Door = Callable[[Any], AbstractContextManager[Any]]


class PipelineApp:
    """Passes on what is for no pipeline, as it came."""

    def __init__(
        self,
        inner: App,
        pipelines: Mapping[str, Pipeline],
        clock: Clock,
        ids: IdSource,
        most_bytes: int,
        door: Door | None = None,
    ) -> None:
        """``door`` lets a request in by its headers or raises Refusal; without one, the
        inner application is asked by a look at its list of models.
        """
        self._inner = inner
        self._pipelines = pipelines
        self._clock = clock
        self._ids = ids
        self._most = most_bytes
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = (scope.get("method"), scope.get("path")) if scope["type"] == "http" else None
        if at == ("GET", MODELS):
            await self._models(scope, receive, send)
        elif at is not None and at[0] == "GET" and self._named(scope["path"]) is not None:
            await self._one_model(scope, receive, send)
        elif at is not None and at[0] == "POST" and scope["path"].rstrip("/") in NAMING:
            await self._named_in_body(scope, receive, send)
        else:
            await self._inner(scope, receive, send)

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, body = await self._whole(scope, receive)
        if start is None:
            return
        try:
            listed = json.loads(body)
            listed["data"] += [_card(name) for name in self._pipelines]
            body = json.dumps(listed).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # an error, or no list: it goes on as it is
        await _pass_on(start, body, send)

    def _named(self, path: str) -> Pipeline | None:
        """The pipeline that `/v1/models/NAME` asks for."""
        return self._pipelines.get(path.removeprefix(MODELS + "/"))

    async def _one_model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A pipeline's card, for those who may see the list."""
        start, body = await self._whole(scope, receive, MODELS)
        if start is None:
            return
        if start["status"] == 200:
            body = json.dumps(_card(scope["path"].removeprefix(MODELS + "/"))).encode()
        await _pass_on(start, body, send)

    async def _whole(
        self, scope: Scope, receive: Receive, path: str | None = None
    ) -> tuple[Message | None, bytes]:
        """The inner application's answer, gathered."""
        start: Message | None = None
        body = bytearray()

        async def take(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
            else:
                body += message.get("body", b"")

        asked = inner_scope(scope, 0, 1)
        asked["headers"] = [
            (n, v) for n, v in asked["headers"] if n not in (b"content-length", b"content-type")
        ]
        asked["extensions"] = scope.get("extensions", {})
        if path is not None:
            asked.update(method="GET", path=path, raw_path=path.encode())
        await self._inner(asked, receive, take)
        scope["route"] = asked.get("route")
        return start, bytes(body)

    async def _named_in_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request whose body says for which model it is."""
        read = await _read(receive, self._most, value_of(scope["headers"], b"content-encoding"))
        asked = _parse(read.body) if read.whole else None
        name = asked.get("model") if asked is not None else read.model
        pipeline = self._pipelines.get(name) if isinstance(name, str) else None
        if pipeline is None or (
            scope["path"].rstrip("/") != CHAT and pipeline.settings.model == name
        ):
            await self._inner(scope, _again(read.messages, receive), send)
            return
        scope["route"] = SimpleNamespace(path=scope["path"])
        live = CURRENT.get()
        assert live is not None, "pipelines stand behind the middleware that opens records"
        live.model, live.clocks, live.answers_itself = pipeline.name, StreamClocks(), True
        try:
            if self._door is None and not await self._admitted(scope, receive, send):
                return
            with self._door(scope["headers"]) if self._door is not None else nullcontext():
                given = _checked(pipeline, scope["path"], read, asked)
                await self._run(pipeline, given, scope, receive, send)
        except Refusal as refusal:
            live.error_kind = refusal.kind
            whole = read.whole or await drain(receive)
            await answer(send, refusal, close=not whole)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether the inner application lets this client in; else its refusal is passed on."""
        start, body = await self._whole(dict(scope), receive, MODELS)
        if start is not None and start["status"] not in (401, 403):
            return True
        if start is not None:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})
        return False

    async def _run(
        self, pipeline: Pipeline, asked: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        live = CURRENT.get()
        assert live is not None
        out = Outward(send, pipeline.name)
        runs = Runs(live, self._clock, self._ids)
        loop = Loop(pipeline, self._inner, scope, receive, out, live, runs)
        try:
            await loop.run(asked)
        except PipelineProblem as problem:
            live.error_kind = problem.kind
            await out.fail(problem)


def _card(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "stagelens"}


async def _pass_on(start: Message, body: bytes, send: Send) -> None:
    """An answer with another body."""
    headers = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a request. ``whole``: all of it; not where it is too long or its client left."""

    messages: list[Message]
    body: bytes
    whole: bool
    left: bool = False

    @property
    def model(self) -> str | None:
        """The model's name, found by pattern, of a body that is too long to be read."""
        return None if self.left else read_asked(self.body, False, b"application/json", 0).model


async def _read(receive: Receive, most: int, packed: bytes | None) -> _Read:
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return _Read(messages, b"", whole=False, left=True)
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size > most or not more:
            body = b"".join(m.get("body", b"") for m in messages)
            whole = not more and size <= most
            if packed and whole:
                return _unpacked(messages, body, packed, most)
            return _Read(messages, body, whole)


def _unpacked(messages: list[Message], body: bytes, packed: bytes, most: int) -> _Read:
    """A packed body; one that cannot be unpacked names no pipeline and goes on as it came."""
    made = bytearray()
    try:
        for piece in decoder_for(packed.decode("latin-1")).feed(body):
            made += piece
            if len(made) > most:
                break
    except Unreadable:
        made.clear()
    return _Read(messages, bytes(made), whole=len(made) <= most)


def _checked(
    pipeline: Pipeline, path: str, read: _Read, asked: dict[str, Any] | None
) -> dict[str, Any]:
    """What is asked; Refusal of a request that names ``pipeline`` and is not for it: upstream it
    would be answered without the pipeline, by a server that knows no such model or takes any name.
    """
    if path != CHAT:
        raise Refusal(
            400, "pipeline_route", f"{pipeline.name} is a pipeline, and those answer at {CHAT} alone"
        )
    most = pipeline.settings.max_request_bytes
    if not read.whole or len(read.body) > most:
        raise Refusal(413, "request_too_large", f"the request is larger than the {most} bytes that "
                      f"pipeline {pipeline.name} reads (max_request_bytes)")  # fmt: skip
    if asked is None:
        raise Refusal(400, "invalid_request_error", "the request's body is no JSON object")
    return asked


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Gives what was read once more, then goes on."""
    left = list(reversed(messages))

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
