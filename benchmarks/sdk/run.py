"""What a decorated call costs: off, on, and beside a raw OpenTelemetry span and other SDKs.

    python benchmarks/sdk/run.py --out result.json

Each contestant has a process of its own, because each sets OpenTelemetry up for the whole
process. There the raw span and the contestant take turns, round by round, and the figure is
their ratio in the same round. All spans end in a processor that does nothing, so that what is
compared is the call and not the sending. A contestant that is not installed is left out, and
the result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

HERE = Path(__file__)
CALLS, ROUNDS = 10_000, 9
IMPORTS = 7
Measured = Mapping[str, list[float]]
sys.path.insert(0, str(HERE.parent))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    words.add_argument("--contestant", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.contestant:
        print(json.dumps(measure(given.contestant)))
        return 0
    from contestants import CONTESTANTS

    rows: dict[str, dict[str, float]] = {}
    for name in CONTESTANTS:
        told = in_own_process(name)
        if told is None:
            print(f"{name}: not installed", file=sys.stderr)
            continue
        for figure, values in told.items():
            rows[figure] = {
                "min": min(values), "median": statistics.median(values), "max": max(values),
            }  # fmt: skip
    rows["import tracer beyond opentelemetry's own, ms"] = imports()
    result = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": versions(),
        "calls": CALLS,
        "rounds": ROUNDS,
        "figures": rows,
    }
    show(rows)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def in_own_process(name: str) -> Measured | None:
    done = subprocess.run(
        [sys.executable, str(HERE), "--contestant", name], capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
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
            rounds.setdefault(f"{label} / raw span", []).append(took / base)
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
began = time.perf_counter()
import tracer
print((time.perf_counter() - began) * 1e3)
"""


def imports() -> dict[str, float]:
    """Milliseconds of ``import tracer`` where OpenTelemetry's SDK and exporter are there already."""
    took = [
        float(
            subprocess.run(
                [sys.executable, "-c", TIMED], capture_output=True, text=True, check=True,
                env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
            ).stdout
        )
        for _ in range(IMPORTS)
    ]  # fmt: skip
    return {"min": min(took), "median": statistics.median(took), "max": max(took)}


def versions() -> dict[str, str]:
    found = {}
    for name in ("opentelemetry-sdk", "logfire", "traceloop-sdk", "openlit"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def show(rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"Python {platform.python_version()}; {ROUNDS} rounds of {CALLS} calls; min / median / max")
    for name, row in rows.items():
        print(f"{name:<52}{row['min']:>10.2f}{row['median']:>10.2f}{row['max']:>10.2f}")


if __name__ == "__main__":
    sys.exit(main())
