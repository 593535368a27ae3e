"""A scripted server for measuring load clients: every answer's times are known.

Answer ``n`` (in the order of arrival) has its first token after a delay drawn from a
lognormal distribution of seed ``SEED`` (its median, in seconds, is the third argument),
then one token every ``GAP_S``, as many as ``max_tokens`` says. With a second argument it
writes there, a line an answer, when its tokens really left: seconds from the request's last
byte, and the monotonic clock's time of that byte. Both are taken where they happen: a
request's byte when the kernel had it, a token after the call that gave it to the kernel
(uvloop's own clock counts milliseconds).
Words count as prompt tokens. ``GET /v1/models`` names one model.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import IO

import httptools
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.arrival import stamp_arrivals, stamped
from tracer.clock import SystemClock

SEED, SPREAD, GAP_S = 7, 0.5, 0.008
TEMPLATE = 9
CLOCK = SystemClock()
HEAD = (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        b"\r\n")  # fmt: skip
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"x"}]}'
_rng = random.Random(SEED)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(choices: bytes, usage: bytes = b"") -> bytes:
    return chunk(
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]%s}'
        b"\n\n" % (choices, usage)
    )


ROLE = event(b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}')
TOKEN = event(b'{"index":0,"delta":{"content":" word"},"finish_reason":null}')
STOP = event(b'{"index":0,"delta":{},"finish_reason":"length"}')
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body), body)  # fmt: skip


class Server(asyncio.Protocol):
    """One connection; requests on it one after another."""

    def __init__(self, log: IO[str] | None, median_s: float) -> None:
        self._log, self._median_s = log, median_s
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # written at once, not when the turn ends
        stamp_arrivals(transport)
        self._reading = stamped(transport, self._take)
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()

    def on_message_begin(self) -> None:
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def data_received(self, data: bytes) -> None:
        self._take(data, None)

    def _take(self, data: bytes, arrived: int | None) -> None:
        self._read_s = (CLOCK.mono_ns() if arrived is None else CLOCK.mono_of_recent(arrived)) / 1e9
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._reading is not None:
            self._reading.end()
        if self._timer is not None:
            self._timer.cancel()

    def on_message_complete(self) -> None:
        if not self._url.endswith(b"/completions"):
            self._transport.write(plain(MODELS if self._url.endswith(b"/models") else b"{}"))
            return
        self._began = self._read_s
        told = json.loads(self._body)
        self._tokens = told.get("max_completion_tokens") or told.get("max_tokens") or 16
        self._prompt = TEMPLATE + sum(len(_text(m).split()) for m in told.get("messages", ()))
        self._stream = bool(told.get("stream"))
        self._left: list[float] = []
        self._first = self._began + self._median_s * _rng.lognormvariate(0, SPREAD)
        self._timer = self._loop.call_at(self._first, self._next)

    def _next(self) -> None:
        count = len(self._left)
        if self._stream:
            self._transport.write(HEAD + ROLE + TOKEN if not count else TOKEN)
        self._left.append(time.monotonic() - self._began)
        if count + 1 < self._tokens:
            self._timer = self._loop.call_at(self._first + (count + 1) * GAP_S, self._next)
            return
        self._timer = None
        usage = {"prompt_tokens": self._prompt, "completion_tokens": self._tokens,
                 "total_tokens": self._prompt + self._tokens}  # fmt: skip
        if self._stream:
            self._transport.write(STOP + event(b"", b',"usage":%s' % json.dumps(usage).encode()) + END)
        else:
            choice = {"index": 0, "finish_reason": "length",
                      "message": {"role": "assistant", "content": " word" * self._tokens}}  # fmt: skip
            body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                    "choices": [choice], "usage": usage}  # fmt: skip
            self._transport.write(plain(json.dumps(body).encode()))
        if self._log is not None:
            row = {"at": self._began, "left": self._left, "done": time.monotonic() - self._began,
                   "prompt": self._prompt, "text": hash(self._body)}  # fmt: skip
            self._log.write(json.dumps(row) + "\n")


def _text(message: dict[str, object]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)  # type: ignore[attr-defined]


async def main(port: int, log: IO[str] | None, median_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Server(log, median_s), "127.0.0.1", port, backlog=4096
    )
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    told = Path(sys.argv[2]).open("w", buffering=1) if len(sys.argv) > 2 else None  # noqa: SIM115
    uvloop.run(main(int(sys.argv[1]), told, float(sys.argv[3]) if len(sys.argv) > 3 else 0.06))
