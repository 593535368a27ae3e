"""What a decorated call costs: off, on, and beside a raw OpenTelemetry span and other SDKs.

    python benchmarks/sdk/run.py --out result.json

Each contestant has a process of its own, because each sets OpenTelemetry up for all of it.
There pytest-benchmark times the raw span and the contestant in turns (calls.py), and a figure
is their ratio in one turn; where another's processor watches starts, it watches the raw
span's too. All spans end in a
processor that does nothing, so that the call is compared and not the sending. Times are CPU
time of the calling thread, so that other processes disturb them less; what Stagelens leaves to
its sending thread is not in them. A contestant that is not installed is left out, and the result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT)]

from contestants import CALLS, CONTESTANTS, PLAIN, ROUNDS, TURNS, WITHOUT  # noqa: E402  by the path above

from stagelens.bench.machine import machine, versions  # noqa: E402

IMPORTS = 7
LOAD = (
    f"{TURNS} turns of {ROUNDS} rounds of {CALLS:,} calls by pytest-benchmark, CPU time of the "
    "calling thread"
)
IMPORT = "import tracer beyond opentelemetry's own, CPU ms"
Measured = Mapping[str, list[float]]


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    rows: dict[str, list[float]] = {}
    for name in CONTESTANTS:
        told = in_own_process(name)
        if told is None:
            print(f"{name}: left out, it or pytest-benchmark is not installed", file=sys.stderr)
            continue
        rows.update(told)
    rows[IMPORT] = imports()
    show(rows)
    if given.out:
        result = {
            "machine": machine(),
            "versions": versions(("stagelens", "opentelemetry-sdk", *CONTESTANTS[1:])),
            "load": LOAD,
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
    """The figures of each turn; None where the contestant, or what it needs, is not installed."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", str(HERE.parent / "calls.py"), "-q", "-c", os.devnull,
             "-p", "no:cacheprovider", f"--rootdir={scratch}", f"--benchmark-json={result}",
             "--benchmark-timer=time.thread_time", "--benchmark-disable-gc"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE.parent}",
                 "STAGELENS_CONTESTANT": name},
        )  # fmt: skip
        if done.returncode:
            told = done.stdout + done.stderr
            if "ModuleNotFoundError" not in told and "unrecognized arguments" not in told:
                print(told, file=sys.stderr)
            return None
        return figures(json.loads(result.read_text())["benchmarks"])


def figures(benchmarks: list[dict[str, Any]]) -> Measured:
    """Ratios to the raw span of the same turn, and for ours what a call costs that is off."""
    turns: dict[int, dict[str, float]] = {}
    for one in benchmarks:
        info = one["extra_info"]
        turns.setdefault(info["turn"], {})[info["name"]] = one["stats"]["median"] * 1e9
    rows: dict[str, list[float]] = {}
    for took in turns.values():
        for name, ns in took.items():
            if name.startswith(("raw", PLAIN, WITHOUT)):
                continue
            raw = took.get(f"raw: {name}", took["raw"])
            rows.setdefault(f"{name} / raw span", []).append(ns / raw)
        if WITHOUT in took:
            rows.setdefault("raw span, ns", []).append(took["raw"])
            rows.setdefault(f"{WITHOUT}, ns added", []).append(took[WITHOUT] - took[PLAIN])
    return rows


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
    print(f"{machine()}; {LOAD}; min / median / max")
    for name, values in rows.items():
        low, mid, high = min(values), statistics.median(values), max(values)
        print(f"{name:<52}{low:>10.2f}{mid:>10.2f}{high:>10.2f}   {goal(name)}")


if __name__ == "__main__":
    sys.exit(main())
