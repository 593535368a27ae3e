"""The load: many streams at once, each stamped at its first token and its end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.priority import first_in_line

ANSWER_S = 4.2
BODY = json.dumps({
    "model": "m", "stream": True, "max_tokens": 200,
    "messages": [{"role": "user", "content": "Where did the time go? " * 20}],
}).encode()  # fmt: skip


class Stream(asyncio.Protocol):
    """One request on its own kept connection; ``ttft_s`` and ``e2e_s`` count from the write."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self.trace_id = os.urandom(16).hex()
        self.ttft_s = self.e2e_s = 0.0
        self.ok = False

    async def run(self) -> None:
        self._done = asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        await self._done

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._began = time.monotonic()
        transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer sk-bench\r\n"
            b"traceparent: 00-%s-00f067aa0ba902b7-01\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (self.trace_id.encode(), len(BODY)) + BODY
        )

    def data_received(self, data: bytes) -> None:
        if not self.ttft_s and b'"content":" word' in data.replace(b": ", b":"):
            self.ttft_s = time.monotonic() - self._began
        if b"[DONE]" in data:
            self.e2e_s = time.monotonic() - self._began
            self.ok = True
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


async def closed_loop(port: int, streams: int, requests: int) -> list[Stream]:
    """``streams`` at once until ``requests`` are done; starts are spread over one answer's length.

    Together they would begin and end in waves, and the wave would be measured.
    """
    left = list(range(requests))
    done: list[Stream] = []
    rng = random.Random(5)

    async def one() -> None:
        await asyncio.sleep(rng.random() * ANSWER_S)
        while left:
            left.pop()
            stream = Stream(port)
            await stream.run()
            done.append(stream)

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
