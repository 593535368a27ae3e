"""The load: many streams at once, each stamped at its first token and its end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.priority import first_in_line

ANSWER_S = 4.2
BODY = json.dumps({
    "model": "m", "stream": True, "max_tokens": 200,
    "messages": [{"role": "user", "content": "Where did the time go? " * 20}],
}).encode()  # fmt: skip


@dataclass
class Seen:
    """One request; ``ttft_s`` and ``e2e_s`` count from the write."""

    trace_id: str = field(default_factory=lambda: os.urandom(16).hex())
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    ok: bool = False


class Client(asyncio.Protocol):
    """Requests one after another on a connection that is kept, as the official clients keep theirs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None

    async def ask(self) -> Seen:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._done, self._seen = loop.create_future(), Seen()
        self._began = time.monotonic()
        self._transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer sk-bench\r\n"
            b"traceparent: 00-%s-00f067aa0ba902b7-01\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (self._seen.trace_id.encode(), len(BODY)) + BODY
        )
        await self._done
        return self._seen

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        seen = self._seen
        if not seen.ttft_s and b'"content":" word' in data.replace(b": ", b":"):
            seen.ttft_s = time.monotonic() - self._began
        if b"[DONE]" in data:
            seen.e2e_s = time.monotonic() - self._began
            seen.ok = True
        if seen.ok and data.endswith(b"0\r\n\r\n"):
            self._end()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._end()

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


async def closed_loop(port: int, streams: int, requests: int) -> list[Seen]:
    """``streams`` at once until ``requests`` are done; starts are spread over one answer's length.

    Together they would begin and end in waves, and the wave would be measured.
    """
    left = list(range(requests))
    done: list[Seen] = []
    rng = random.Random(5)

    async def one() -> None:
        await asyncio.sleep(rng.random() * ANSWER_S)
        client = Client(port)
        while left:
            left.pop()
            done.append(await client.ask())
        client.close()

    await asyncio.gather(*(one() for _ in range(streams)))
    return done


def main() -> None:
    port, streams, requests = map(int, sys.argv[1:4])
    first_in_line()
    done = uvloop.run(closed_loop(port, streams, requests))
    bad = sum(not s.ok for s in done)
    good = [s for s in done if s.ok]
    print(json.dumps({"bad": bad, "ttft": [s.ttft_s for s in good],
                      "e2e": [s.e2e_s for s in good],
                      "trace_id": [s.trace_id for s in good]}))  # fmt: skip


if __name__ == "__main__":
    main()
