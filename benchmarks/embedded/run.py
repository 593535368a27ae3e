"""Embedded server against plain `vllm serve`: same model, flags and load, alternating.

Each round starts one server, warms it, loads it in a closed loop with streamed
requests of fixed seeds and lengths, and stops it; then the other one. What is
compared are ratios within a round, so a machine that is slow for a while slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.raw_client import Seen, post

S = TypeVar("S", bound=Seen)
FLAGS = ("--max-model-len", "2048", "--enforce-eager", "--dtype", "float32",
         "--served-model-name", "bench")  # fmt: skip
GOALS = {"throughput": (0.97, "at least"), "ttft_p50": (1.03, "at most"),
         "ttft_p99": (1.03, "at most")}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One server's figures in one round, measured by the client."""

    tokens_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    e2e_p50_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        order = ("plain", "stagelens") if number % 2 == 0 else ("stagelens", "plain")
        found = {name: one_server(name, options) for name in order}
        rounds.append(found)
        print(f"round {number + 1}: " + "; ".join(f"{n} {asdict(r)}" for n, r in found.items()),
              file=sys.stderr)  # fmt: skip
    show(rounds, options)
    return 0


def one_server(name: str, options: argparse.Namespace) -> Result:
    """Start, warm, load, stop."""
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        server = start(name, options.model, port, Path(scratch))
        try:
            wait_ready(server, port, Path(scratch) / "log")
            asyncio.run(load(port, 16, options.concurrency, options.tokens, seed=1))
            began = time.monotonic()
            seen = asyncio.run(
                load(port, options.requests, options.concurrency, options.tokens, seed=2)
            )
            took = time.monotonic() - began
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    assert all(s.status == 200 and s.first_token_s for s in seen)
    ttft = sorted(s.first_token_s for s in seen)
    return Result(
        tokens_per_s=len(seen) * options.tokens / took,
        ttft_p50_s=statistics.median(ttft),
        ttft_p99_s=statistics.quantiles(ttft, n=100, method="inclusive")[98],
        e2e_p50_s=statistics.median(s.e2e_s for s in seen),
    )


def start(name: str, model: str, port: int, scratch: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    if name == "plain":
        # what `vllm serve` runs; the command itself looks for a package named vllm, which the
        # CPU build is not
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model",
                   model, "--host", "127.0.0.1", "--port", str(port), *FLAGS]  # fmt: skip
    else:
        command = [
            sys.executable, "-m", "stagelens", "serve", "--model", model, "--port", str(port),
            "--otlp-port", "0", "--api-port", "0", "--data-dir", str(scratch / "data"), "--", *FLAGS,
        ]  # fmt: skip
    with (scratch / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def wait_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(1200):
        assert server.poll() is None, f"the server ended: {log.read_text()[-1500:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.25)
    raise AssertionError("the server was not ready in time")


async def load(
    port: int,
    count: int,
    concurrency: int,
    tokens: int,
    seed: int,
    post: Callable[[int, str, dict[str, object]], Awaitable[S]] = post,
) -> list[S]:
    """``count`` streamed requests in a closed loop; the same for the same seed."""
    rng = random.Random(seed)
    gate = asyncio.Semaphore(concurrency)
    prompts = [" ".join(str(rng.randint(0, 999)) for _ in range(rng.randint(8, 80)))
               for _ in range(count)]  # fmt: skip

    async def one(prompt: str) -> S:
        async with gate:
            return await post(port, "/v1/chat/completions", {
                "model": "bench", "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0,
            })  # fmt: skip

    return list(await asyncio.gather(*(one(p) for p in prompts)))


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def cpu_name() -> str:
    """The CPU's own name where the kernel tells it, else its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def versions() -> dict[str, str]:
    found = {}
    for name in ("stagelens", "vllm", "vllm-cpu", "torch", "uvicorn"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def show(rounds: list[dict[str, Result]], options: argparse.Namespace) -> None:
    """Ratios stagelens / plain, min median max, beside their goals."""
    ratios = {
        "throughput": [r["stagelens"].tokens_per_s / r["plain"].tokens_per_s for r in rounds],
        "ttft_p50": [r["stagelens"].ttft_p50_s / r["plain"].ttft_p50_s for r in rounds],
        "ttft_p99": [r["stagelens"].ttft_p99_s / r["plain"].ttft_p99_s for r in rounds],
    }
    facts = {
        "machine": f"{os.cpu_count()} cores, {cpu_name()}, Python {platform.python_version()}",
        "versions": versions(),
        "load": f"{options.requests} requests, concurrency {options.concurrency}, "
        f"{options.tokens} tokens, streamed, {options.rounds} rounds",
    }
    print(f"machine: {facts['machine']}; load: {facts['load']}; versions: {facts['versions']}")
    print(f"{'stagelens / plain':<20}{'min':>8}{'median':>8}{'max':>8}   goal")
    for name, values in ratios.items():
        goal, side = GOALS[name]
        print(f"{name:<20}{min(values):>8.3f}{statistics.median(values):>8.3f}"
              f"{max(values):>8.3f}   {side} {goal}")  # fmt: skip
    if options.out:
        rows = [{name: asdict(r) for name, r in one.items()} for one in rounds]
        told = [
            {"what": f"{name}, stagelens / plain", "values": values, "goal": f"{side} {goal}"}
            for (name, values), (goal, side) in zip(ratios.items(), GOALS.values(), strict=True)
        ]
        options.out.write_text(
            json.dumps({**facts, "ratios": ratios, "rounds": rows, "rows": told}, indent=2)
        )


if __name__ == "__main__":
    sys.exit(main())
