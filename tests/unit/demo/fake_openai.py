"""A small OpenAI-compatible server on a real socket, with the faults that a load may meet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn


@dataclass
class FakeOpenAI:
    """Answers every request in three chunks; ``faults`` maps a request's kind to what is wrong.

    ``500`` and ``400`` are answered as such; ``cut`` ends the stream before the finish
    reason, ``reset`` breaks the connection in the middle of the body.
    """

    faults: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, object]] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        asked = json.loads(await _body(receive))
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        tags = dict(t.split("=") for t in headers["x-stagelens-tags"].split(","))
        self.requests.append({"path": scope["path"], "tags": tags, **asked})
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await self._answer(send, asked, self.faults.get(tags["kind"], ""), scope["path"])
        finally:
            self.in_flight -= 1

    async def _answer(self, send, asked, fault: str, path: str) -> None:
        if fault.isdigit():
            error = {"error": {"message": "as told", "type": "Fault", "code": int(fault)}}
            await _respond(send, int(fault), "application/json", [json.dumps(error).encode()])
        elif asked["stream"]:
            chunks = _stream(asked["n"], "chat" in path, finish=fault != "cut")
            await _respond(send, 200, "text/event-stream", chunks, broken=fault == "reset")
        else:
            choices = [
                {"index": i, "finish_reason": "stop", "text": "x",
                 "message": {"role": "assistant", "content": "x"}}
                for i in range(asked["n"])
            ]  # fmt: skip
            whole = json.dumps({"id": "1", "object": "x", "choices": choices}).encode()
            await _respond(send, 200, "application/json", [whole])


async def _body(receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def _stream(n: int, chat: bool, *, finish: bool) -> list[bytes]:
    events = []
    for i in range(n):
        role = {"delta": {"role": "assistant", "content": ""}} if chat else {"text": ""}
        token = {"delta": {"content": "x"}} if chat else {"text": "x"}
        end = {"delta": {}, "finish_reason": "stop"} if chat else {"text": "", "finish_reason": "stop"}
        events += [{"index": i, **role}, {"index": i, **token}]
        if finish:
            events.append({"index": i, **end})
    lines = [json.dumps({"id": "1", "choices": [e]}) for e in events]
    return [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]


async def _respond(send, status: int, kind: str, parts: list[bytes], *, broken=False) -> None:
    headers = [(b"content-type", kind.encode()), (b"x-stagelens-trace-id", b"a" * 32)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for part in parts[:-2] if broken else parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if broken:
        raise ConnectionResetError("as told")
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(fake: FakeOpenAI) -> AsyncIterator[str]:
    """Its address, while it serves."""
    config = uvicorn.Config(fake, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  it has no event to wait for
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
