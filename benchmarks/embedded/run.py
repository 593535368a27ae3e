"""Embedded server against plain `vllm serve`: same model, flags and load, alternating.

Both servers are started and warmed; then blocks of the load go to one and to the other
in turn, so that what slows the machine for a while slows both. A block is a closed loop
of streamed requests with fixed lengths; both of a pair get the same prompts, the next
pair gets others, so that no prefix is found in a cache. Ratios are given per pair (min,
median, max) and for all blocks together, with a 95 % bootstrap interval over the pairs.
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
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.programs import free_port
from tests.support.raw_client import Seen, post

S = TypeVar("S", bound=Seen)
FLAGS = ("--max-model-len", "2048", "--enforce-eager", "--dtype", "float32",
         "--served-model-name", "bench")  # fmt: skip
NAMES = ("plain", "stagelens")
GOALS = {"throughput": "at least 0.97", "ttft_p50": "at most 1.03", "ttft_p99": "at most 1.03"}


@dataclass(frozen=True)
class Block:
    """One server's share of a pair, measured by the client."""

    tokens: int
    took_s: float
    ttft_s: list[float]
    e2e_s: list[float]


Pair = dict[str, Block]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--requests", type=int, default=24, help="in one block")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(running(name, options.model)) for name in NAMES}
        for port in ports.values():
            block(port, options, seed=0)
        pairs = [one_pair(number, ports, options) for number in range(options.pairs)]
    show(pairs, options)
    return 0


def one_pair(number: int, ports: dict[str, int], options: argparse.Namespace) -> Pair:
    order = NAMES if number % 2 == 0 else NAMES[::-1]
    pair = {name: block(ports[name], options, seed=number + 1) for name in order}
    told = "; ".join(f"{n} {b.tokens / b.took_s:.2f} tokens/s, TTFT p50 {p50(b.ttft_s):.3f} s"
                     for n, b in pair.items())  # fmt: skip
    print(f"pair {number + 1}: {told}", file=sys.stderr)
    return pair


def block(port: int, options: argparse.Namespace, seed: int) -> Block:
    began = time.monotonic()
    seen = asyncio.run(load(port, options.requests, options.concurrency, options.tokens, seed))
    took = time.monotonic() - began
    assert all(s.status == 200 and s.first_token_s for s in seen)
    return Block(len(seen) * options.tokens, took, [s.first_token_s for s in seen],
                 [s.e2e_s for s in seen])  # fmt: skip


@contextlib.contextmanager
def running(name: str, model: str) -> Iterator[int]:
    """Start and, afterwards, stop; the port once it is ready."""
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        server = start(name, model, port, Path(scratch))
        try:
            wait_ready(server, port, Path(scratch) / "log")
            yield port
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def p50(values: list[float]) -> float:
    return statistics.median(values)


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def joined(pairs: list[Pair], name: str) -> Block:
    """All of one server's blocks as one."""
    mine = [pair[name] for pair in pairs]
    return Block(
        sum(b.tokens for b in mine), sum(b.took_s for b in mine),
        [t for b in mine for t in b.ttft_s], [t for b in mine for t in b.e2e_s],
    )  # fmt: skip


def ratios(pairs: list[Pair]) -> dict[str, float]:
    """stagelens / plain, of the pairs taken together."""
    ours, plain = joined(pairs, "stagelens"), joined(pairs, "plain")
    return {
        "throughput": (ours.tokens / ours.took_s) / (plain.tokens / plain.took_s),
        "ttft_p50": p50(ours.ttft_s) / p50(plain.ttft_s),
        "ttft_p99": p99(ours.ttft_s) / p99(plain.ttft_s),
        "e2e_p50": p50(ours.e2e_s) / p50(plain.e2e_s),
    }


def interval(pairs: list[Pair], name: str) -> tuple[float, float]:
    """95 % of what the ratio is over pairs drawn again and again from these."""
    rng = random.Random(3)
    drawn = sorted(ratios(rng.choices(pairs, k=len(pairs)))[name] for _ in range(400))
    return drawn[10], drawn[-11]


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


def show(pairs: list[Pair], options: argparse.Namespace) -> None:
    """Each ratio per pair and together, beside its goal."""
    facts = {
        "machine": f"{os.cpu_count()} cores, {cpu_name()}, Python {platform.python_version()}",
        "versions": versions(),
        "load": f"{options.pairs} pairs of blocks of {options.requests} requests, concurrency "
        f"{options.concurrency}, {options.tokens} tokens, streamed",
    }
    print(f"machine: {facts['machine']}; load: {facts['load']}; versions: {facts['versions']}")
    print(f"{'stagelens / plain':<20}{'min':>8}{'median':>8}{'max':>8}{'all':>8}{'95 %':>16}   goal")
    each, whole = [ratios([pair]) for pair in pairs], ratios(pairs)
    for name, value in whole.items():
        values = [one[name] for one in each]
        low, high = interval(pairs, name)
        print(f"{name:<20}{min(values):>8.3f}{statistics.median(values):>8.3f}{max(values):>8.3f}"
              f"{value:>8.3f}{f'{low:.3f}-{high:.3f}':>16}   {GOALS.get(name, '')}")  # fmt: skip
    if options.out:
        rows = [{name: asdict(one) for name, one in pair.items()} for pair in pairs]
        told = [
            {"what": f"{name}, stagelens / plain", "values": [one[name] for one in each],
             "goal": GOALS.get(name, "")}
            for name in whole
        ]  # fmt: skip
        kept = {**facts, "ratios": whole, "each": each, "pairs": rows, "rows": told}
        options.out.write_text(json.dumps(kept, indent=2))


if __name__ == "__main__":
    sys.exit(main())
