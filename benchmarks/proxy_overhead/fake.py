"""A scripted upstream for the benchmark: fixed times, as little CPU a chunk as Python can.

``POST /v1/chat/completions`` answers with ``TOKENS`` chunks, the first after
``FIRST_S`` and then one every ``GAP_S``; each stream has its own phase, so that 128
of them do not wake at once. Other paths answer ``{}``. With a second argument it
writes there, for each answer, the trace it belongs to and when its first and last
token really left, in seconds after the request reached this host (the kernel's stamp: that
this process was told of it late is no fault of a proxy's).
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from pathlib import Path
from typing import IO

import httptools
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.priority import first_in_line
from proxy.arrival import make_listener, stamped
from tracer.clock import SystemClock

TOKENS, FIRST_S, GAP_S = 200, 0.2, 0.02
HEAD = (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        b"\r\n")  # fmt: skip
EMPTY = (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(delta: bytes, finish: bytes = b"null") -> bytes:
    return chunk(
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n' % (delta, finish)
    )


ROLE = event(b'{"role":"assistant","content":""}')
WORDS = [event(b'{"content":" word%d"}' % n) for n in range(10)]  # litellm ends streams that repeat one
USAGE = chunk(
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],'
    b'"usage":{"prompt_tokens":120,"completion_tokens":%d,"total_tokens":%d}}\n\n'
    % (TOKENS, TOKENS + 120)
)
LAST = event(b"{}", b'"stop"') + USAGE + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection; requests on it one after another."""

    def __init__(self, log: IO[str] | None) -> None:
        self._log = log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._reading = stamped(transport, self._take)
        self._transport = transport
        self._clock = SystemClock()
        self._arrived_ns = 0
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._trace_id = ""
        self._first_s = 0.0

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"traceparent":
            self._trace_id = value[3:35].decode()

    def data_received(self, data: bytes) -> None:
        self._take(data, None)

    def _take(self, data: bytes, arrived_unix_ns: int | None) -> None:
        if arrived_unix_ns is None:
            self._arrived_ns = self._clock.mono_ns()
        else:
            self._arrived_ns = self._clock.mono_of_recent(arrived_unix_ns)
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._reading is not None:
            self._reading.end()
        if self._timer is not None:
            self._timer.cancel()

    def on_message_complete(self) -> None:
        if not self._url.endswith(b"/chat/completions"):
            self._transport.write(EMPTY)
            return
        self._begun = self._loop.time()
        self._begun_s = self._arrived_ns / 1e9  # the loop counts in whole milliseconds
        self._sent = 0
        self._timer = self._loop.call_at(self._begun + FIRST_S, self._next)

    def _next(self) -> None:
        if self._sent == 0:
            self._transport.write(HEAD + ROLE)
            self._first_s = time.monotonic() - self._begun_s
        self._sent += 1
        self._transport.write(WORDS[self._sent % len(WORDS)])
        if self._sent == TOKENS:
            last_s = time.monotonic() - self._begun_s
            self._transport.write(LAST)
            self._timer = None
            if self._log is not None:
                row = {"trace_id": self._trace_id, "first_s": self._first_s, "last_s": last_s}
                self._log.write(json.dumps(row) + "\n")
                self._log.flush()
        else:
            self._timer = self._loop.call_at(
                self._begun + FIRST_S + self._sent * GAP_S, self._next
            )


async def main(port: int, log: IO[str] | None) -> None:
    listener = make_listener(socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server = await asyncio.get_running_loop().create_server(
        lambda: Upstream(log), sock=listener, backlog=1024
    )
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    first_in_line()
    told = Path(sys.argv[2]).open("w") if len(sys.argv) > 2 else None  # noqa: SIM115
    uvloop.run(main(int(sys.argv[1]), told))
