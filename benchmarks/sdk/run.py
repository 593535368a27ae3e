"""What a decorated call costs: off, on, and beside a raw OpenTelemetry span and other SDKs.

    python benchmarks/sdk/run.py --out result.json

Each contestant has a process of its own, because each sets OpenTelemetry up for all of it.
There the raw span and the contestant take turns, and a figure is their ratio in one round;
where another's processor watches starts, it watches the raw span's too. All spans end in a
processor that does nothing, so that the call is compared and not the sending. Times are CPU
time of the calling thread, so that other processes disturb them less; what Stagelens leaves to
its sending thread is not in them. A contestant that is not installed is left out, and the
result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT)]

from stagelens.bench.machine import machine, versions  # noqa: E402  found by the path above

CALLS, ROUNDS = 1_000, 60
IMPORTS = 7
IMPORT = "import tracer beyond opentelemetry's own, CPU ms"
Measured = Mapping[str, list[float]]


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    words.add_argument("--contestant", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.contestant:
        print(json.dumps(measure(given.contestant)))
        return 0
    from contestants import CONTESTANTS

    rows: dict[str, list[float]] = {}
    for name in CONTESTANTS:
        told = in_own_process(name)
        if told is None:
            print(f"{name}: not installed", file=sys.stderr)
            continue
        rows.update(told)
    rows[IMPORT] = imports()
    show(rows)
    if given.out:
        result = {
            "machine": machine(),
            "versions": versions(("stagelens", "opentelemetry-sdk", *CONTESTANTS[1:])),
            "load": f"{ROUNDS} rounds of {CALLS} calls, CPU time of the calling thread",
            "rows": [{"what": n, "values": v, "goal": goal(n)} for n, v in rows.items()],
        }
        given.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def goal(name: str) -> str:
    if name == IMPORT:
        return "at most 150"
    if name.startswith("@"):
        return "at most 300" if "not configured" in name else "at most 1.3"
    return ""


def in_own_process(name: str) -> Measured | None:
    done = subprocess.run(
        [sys.executable, str(HERE), "--contestant", name], capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        if "ModuleNotFoundError" not in done.stderr:
            print(done.stderr, file=sys.stderr)
        return None
    told: Measured = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def measure(name: str) -> Measured:
    """Rounds of the raw span and the contestant in turns; for ours the cost when off as well."""
    import contestants

    raw, calls, off = contestants.set_up(name)
    rounds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        base = per_call(raw)
        for label, call in calls.items():
            took = per_call(contestants.ready(call))
            own = contestants.beside(call)
            rounds.setdefault(f"{label} / raw span", []).append(took / (per_call(own) if own else base))
        if off is not None:
            rounds.setdefault("raw span, ns", []).append(base)
            plain = per_call(contestants.work)
            took = per_call(contestants.ready(off)) - plain
            rounds.setdefault("@llm not configured, ns added", []).append(took)
    return rounds


def per_call(call: Callable[[int], object]) -> float:
    began = time.thread_time_ns()
    for n in range(CALLS):
        call(n)
    return (time.thread_time_ns() - began) / CALLS


TIMED = """
import time
import opentelemetry.sdk.trace, opentelemetry.sdk.resources
import opentelemetry.exporter.otlp.proto.http.trace_exporter
began = time.process_time()
import tracer
print((time.process_time() - began) * 1e3)
"""


def imports() -> list[float]:
    """Milliseconds of ``import tracer`` where OpenTelemetry's SDK and exporter are there already."""
    return [
        float(
            subprocess.run(
                [sys.executable, "-c", TIMED], capture_output=True, text=True, check=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            ).stdout
        )
        for _ in range(IMPORTS)
    ]  # fmt: skip


def show(rows: Measured) -> None:
    print(f"{machine()}; {ROUNDS} rounds of {CALLS} calls; min / median / max")
    for name, values in rows.items():
        low, mid, high = min(values), statistics.median(values), max(values)
        print(f"{name:<52}{low:>10.2f}{mid:>10.2f}{high:>10.2f}   {goal(name)}")


if __name__ == "__main__":
    sys.exit(main())
