"""How true `stagelens bench` is: its percentiles beside those of the server it loads.

The server (target.py) writes down when each token really left. It has one core, the
load client the other one. First an open loop at --rate; then a replay of 1,000 recorded
requests; then, where --guidellm names an environment that has it, guidellm on the same
target at a rate that it can hold, alternating with ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.cores import bind, two_cores
from dashboards.models.records import Record
from stagelens.bench.figures import percentile
from stagelens.bench.machine import machine, versions
from stagelens.bench.replay import choose
from stagelens.bench.run import Runner, run_fast
from stagelens.bench.settings import BenchSettings
from tracer.clock import SystemClock

HERE = Path(__file__).resolve().parent
CORES = two_cores()  # ``one`` is the load's, ``other`` the target's
LEVELS = (50, 90, 99)
Percentiles = Mapping[int, float]
"""Seconds by level."""
FIRST_S = 0.06
"""Median time to the first token of the target's answers."""


@dataclass(frozen=True)
class Truth:
    """What the target did, in the order of arrival: seconds."""

    at: list[float]
    ttft: list[float]
    e2e: list[float]
    itl: list[float]


@dataclass
class Target:
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def truth(self, last: int) -> Truth:
        """Of the ``last`` requests: those before are probes and warm-up."""
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        rows = sorted(rows, key=lambda row: row["at"])[-last:]
        return Truth(
            at=[r["at"] for r in rows], ttft=[r["left"][0] for r in rows],
            e2e=[r["done"] for r in rows],
            itl=[b - a for r in rows for a, b in pairwise(r["left"])],
        )  # fmt: skip


@contextlib.contextmanager
def target(folder: Path, first_s: float = FIRST_S) -> Iterator[Target]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = int(sock.getsockname()[1])
    log = folder / f"target-{port}.jsonl"
    process = subprocess.Popen(
        [sys.executable, str(HERE / "target.py"), str(port), str(log), str(first_s)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: bind(CORES.other),  # noqa: PLW1509  no threads here
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        url = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(f"{url}/v1/models", timeout=5).read()
        yield Target(url, log, process)
    finally:
        process.terminate()
        process.wait(10)


def ours(
    folder: Path, rate: float, seconds: float, arrivals: str, first_s: float = FIRST_S
) -> tuple[dict[str, Percentiles], float, Truth]:
    """The percentiles that the command prints, its CPU a request, and the truth of the same requests."""
    out, before = folder / "ours.json", cpu_s()
    with target(folder, first_s) as one:
        subprocess.run(
            [sys.executable, "-m", "stagelens", "bench", "--url", one.url, "--rate", str(rate),
             "--arrivals", arrivals, "--duration", str(seconds), "--warmup", "2", "--input", "64",
             "--output", "16", "--format", "json", "--out", str(out), "--quiet"],
            check=True, preexec_fn=lambda: bind(CORES.one),
        )  # fmt: skip
        used = cpu_s() - before
        [level] = json.loads(out.read_text())["levels"]
        counts = level["counts"]
        assert counts["ok"] == counts["sent"], counts
        truth = one.truth(counts["ok"])
    seen = {f["measure"]: {p: f[f"p{p}_ns"] / 1e9 for p in LEVELS} for f in level["figures"] if f["n"]}
    return seen, used / counts["ok"], truth


def cpu_s() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def accuracy(folder: Path, rate: float, seconds: float) -> list[dict[str, object]]:
    """Rows: how far each percentile from the send is from the truth."""
    seen, cpu, truth = ours(folder, rate, seconds, "poisson")
    rows: list[dict[str, object]] = []
    true_tpot = [(e - t) / 15 for e, t in zip(truth.e2e, truth.ttft, strict=True)]
    for name, found, true in (
        ("TTFT", seen["ttft_sent"], truth.ttft), ("E2E", seen["e2e_sent"], truth.e2e),
        ("ITL", seen["itl"], truth.itl), ("TPOT", seen["tpot"], true_tpot),
    ):  # fmt: skip
        for level in LEVELS:
            a, b = found[level], at(true, level)
            rows.append(row(f"{name} p{level} at {rate:g}/s, off by", "ms", [(a - b) * 1e3],
                            "within 1 ms or 1 %", seen_ms=a * 1e3, true_ms=b * 1e3))  # fmt: skip
    rows.append(row("client's CPU a request, its start included", "ms", [cpu * 1e3], ""))
    rows.append(row("sent late, p99", "ms", [seen["late"][99] * 1e3], ""))
    span = truth.at[-1] - truth.at[0]
    rows.append(row("requests reached the server", "1/s", [(len(truth.at) - 1) / span], f"{rate:g}"))
    return rows


def replayed(folder: Path, count: int = 1000) -> list[dict[str, object]]:
    """Rows: gaps at the server beside the recorded ones, and lengths."""
    rng = random.Random(3)
    at_ns, made = 0, []
    for n in range(count):
        times = dict.fromkeys(("prompt_ns", "queue_ns", "prefill_ns", "decode_ns", "deliver_ns"), 0)
        made.append(Record(
            trace_id=f"{n:032x}", start_unix_ns=at_ns, stream=True, status="ok", e2e_ns=1, ttft_ns=1,
            tpot_ns=None, input_tokens=rng.randint(12, 800), output_tokens=rng.randint(1, 24),
            cached_tokens=0, **times,
        ))  # fmt: skip
        at_ns += int(rng.expovariate(1 / 20e6))
    bind(CORES.one)
    with target(folder) as one:
        settings = BenchSettings(url=one.url, replay="made")
        runner = Runner(settings, "r", None, SystemClock(), recorded=choose(made))
        ran = run_fast(runner.run())
        truth = one.truth(count)
    bind(CORES.allowed)
    [(level, _)] = ran.levels
    wanted = [(b.start_unix_ns - a.start_unix_ns) / 1e9 for a, b in pairwise(made)]
    gaps = [b - a for a, b in pairwise(truth.at)]
    off = [abs(a - b) for a, b in zip(gaps, wanted, strict=True)]
    exact = min(level.inputs_as_meant, level.outputs_as_meant)
    return [
        row(f"replay of {count}: gaps at the server off by, p99", "ms", [at(off, 99) * 1e3], "at most 2"),
        row("replay: requests with exact lengths", "", [exact], str(count)),
        row("replay: answered", "", [level.counts.ok], str(count)),
    ]


def against_guidellm(folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """Rows: each tool's figure over the truth of its own requests, so that they compare."""
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        tools = ("stagelens", "guidellm") if number % 2 == 0 else ("guidellm", "stagelens")
        figures = {tool: one_tool(tool, folder, options) for tool in tools}
        for name in figures["stagelens"]:
            ratio = figures["stagelens"][name] / figures["guidellm"][name]
            found.setdefault(name, []).append(ratio)
            print(f"round {number + 1}: {name}: {figures['stagelens'][name]:.4f} (ours), "
                  f"{figures['guidellm'][name]:.4f} (guidellm)", file=sys.stderr)  # fmt: skip
    return [row(f"{name}, ours / guidellm", "", values, "0.97 to 1.03") for name, values in found.items()]


def one_tool(tool: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    rate, seconds, first_s = options.guidellm_rate, options.seconds, options.guidellm_first
    if tool == "stagelens":
        seen, _, truth = ours(folder, rate, seconds, "constant", first_s)
        seen = {"TTFT": seen["ttft_sent"], "E2E": seen["e2e_sent"], "ITL": seen["tpot"]}
    else:
        values, truth = guidellm(folder, options)
        seen = {name: {p: at(of_all, p) for p in LEVELS} for name, of_all in values.items()}
    print(f"{tool}: true TTFT p50 {at(truth.ttft, 50):.4f} p99 {at(truth.ttft, 99):.4f}, "
          f"true E2E p50 {at(truth.e2e, 50):.4f}; n {len(truth.at)}", file=sys.stderr)  # fmt: skip
    true = {"TTFT": truth.ttft, "E2E": truth.e2e,
            "ITL": [(e - t) / 15 for e, t in zip(truth.e2e, truth.ttft, strict=True)]}  # fmt: skip
    return {f"{name} p{p} over the truth": found[p] / at(true[name], p)
            for name, found in seen.items() for p in LEVELS}  # fmt: skip


def guidellm(folder: Path, options: argparse.Namespace) -> tuple[dict[str, list[float]], Truth]:
    """guidellm at a constant rate; its per-request values out of its JSON report."""
    env, rate, seconds = options.guidellm, options.guidellm_rate, options.seconds
    out = folder / "guidellm.json"
    out.unlink(missing_ok=True)
    with target(folder, options.guidellm_first) as one:
        subprocess.run(
            [f"{env}/bin/guidellm", "run", "--backend", f"kind=openai_http,target={one.url},model=m",
             "--profile", f"kind=constant,rate={rate:g}",
             "--constraint", f"kind=max_duration,seconds={seconds:g}",
             "--tokenizer", f"kind=hf_auto,model={env / 'tokenizer'}",
             "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
             "--output", f"kind=json,path={out}", "--disable-console"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: bind(CORES.one),
        )  # fmt: skip
        requests = json.loads(out.read_text())["benchmarks"][0]["requests"]["successful"]
        truth = one.truth(len(requests))
    return {
        "TTFT": [r["time_to_first_token_ms"] / 1e3 for r in requests],
        "E2E": [r["request_latency"] for r in requests],
        "ITL": [r["inter_token_latency_ms"] / 1e3 for r in requests],
    }, truth


def at(values: list[float], level: float) -> float:
    found = percentile(sorted(values), level)
    assert found is not None
    return found


def row(what: str, unit: str, values: list[float], goal: str, **more: float) -> dict[str, object]:
    return {"what": what, "unit": unit, "values": values, "goal": goal, **more}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--guidellm", type=Path, help="environment with guidellm 0.8 and a tokenizer/ folder")
    parser.add_argument("--guidellm-rate", type=float, default=20)
    parser.add_argument("--guidellm-first", type=float, default=0.4, help="seconds to the first token there")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    try:
        parts = [accuracy(scratch, options.rate, options.seconds) for _ in range(options.rounds)]
        rows = [merged(same) for same in zip(*parts, strict=True)]
        rows += replayed(scratch)
        if options.guidellm:
            rows += against_guidellm(scratch, options)
    finally:
        shutil.rmtree(scratch)
    told = {"machine": machine(), "versions": versions(), "rows": rows,
            "load": CORES.told(f"{options.rate:g} requests/s for {options.seconds:g} s, 16 tokens, one "
            f"core; {options.rounds} rounds"), "made_at": time.strftime("%Y-%m-%d")}  # fmt: skip
    print(f"machine: {told['machine']}; load: {told['load']}")
    for one in rows:
        v = one["values"]
        print(f"{one['what']:<52}{min(v):>10.3f}{statistics.median(v):>10.3f}{max(v):>10.3f} "
              f"{one['unit']:<4} {one['goal']}")  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(told, indent=2))
    return 0


def merged(same: tuple[dict[str, object], ...]) -> dict[str, object]:
    return {**same[0], "values": [v for one in same for v in one["values"]]}  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.exit(main())
