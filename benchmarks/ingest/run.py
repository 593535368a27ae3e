"""Spans a second, acknowledged and queryable, by each route of ours and by Phoenix.

A real collector in a process of its own with a new embedded store; the same bodies to each.
"Queryable" is when the store has every span: a SELECT finds it. CPU is the collector's own.

    python benchmarks/ingest/run.py --spans 1000000 --out ingest.json
    python benchmarks/ingest/run.py --phoenix VENV/bin/python --phoenix-spans 20000
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.ingest.spans import BODY_TRACES, NAMES, bodies  # noqa: E402
from stagelens.bench.machine import machine, versions  # noqa: E402
from stagelens.ready import read_ready  # noqa: E402
from tracer.clock import SystemClock  # noqa: E402

ROUTES = {"plain": "4000", "rows": "null"}
BODY_SPANS = BODY_TRACES * len(NAMES)
TICKS = os.sysconf("SC_CLK_TCK")
SIZES = """
import json, sys
from collectors.store.client import open_store
from collectors.store.url import StoreUrl
from collectors.store.upkeep import sizes
store = open_store(StoreUrl.parse(sys.argv[1]))
n = store.query("SELECT count() AS n, uniqExact(SpanId) AS u FROM otel.otel_traces", {})[0]
if sys.argv[2] == "merged":
    for one in sizes(store):
        store.command(f"OPTIMIZE TABLE otel.{one.table} FINAL")
tables = {one.table: one.packed_bytes for one in sizes(store)}
print(json.dumps({"spans": n["n"], "different": n["u"], "tables": tables}))
store.close()
"""


FIGURES = {
    "acknowledged_per_s": ("acknowledged", "spans/s", "at least 150,000"),
    "queryable_per_s": ("queryable", "spans/s", "at least 150,000"),
    "cpu_us_per_span": ("CPU of the collector", "us/span", ""),
    "sender_cpu_us_per_span": ("CPU of the sender", "us/span", ""),
    "bytes_per_span": ("on disk, all tables, merged", "bytes/span", "at most 40"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One round of one contestant."""

    spans: int
    acknowledged_per_s: float
    queryable_per_s: float
    cpu_us_per_span: float
    sender_cpu_us_per_span: float
    bytes_per_span: float
    rss_mib: tuple[float, ...]
    sent_away: int
    tables: dict[str, int]


class Watched:
    """CPU seconds and memory of a process, from /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.rss: list[float] = []
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def _watch(self) -> None:
        while not self._halt.wait(0.2):
            text = Path(f"/proc/{self.pid}/status").read_text()
            self.rss.append(int(text.partition("VmRSS:")[2].split()[0]) / 1024)

    def stop(self) -> None:
        self._halt.set()
        self._thread.join()


@contextmanager
def collector(folder: Path, plain: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    (folder / "config.yaml").write_text(f"collect: {{plain_from_spans: {plain}, gauges: {{gpu: false}}}}\n")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "stagelens", "collect", "--store", f"chdb://{folder / 'store'}",
            "--otlp-port", "0", "--api-port", "0", "--ready-file", str(folder / "ready.json"),
            "--config", str(folder / "config.yaml"),
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        while (facts := read_ready(folder / "ready.json")) is None:
            assert process.poll() is None
            time.sleep(0.05)
        yield process, facts["collector"], facts["api"]
    finally:
        process.terminate()
        process.wait(120)


def ours(plain: str, file: Path, spans: int, connections: int) -> Result:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with collector(folder, plain) as (process, url, api):
            watched = Watched(process.pid)
            began, cpu = time.perf_counter(), watched.cpu_s()
            sent = send(url, file, connections)
            while written(api) < spans:
                time.sleep(0.01)
            queryable, cpu = time.perf_counter() - began, watched.cpu_s() - cpu
            watched.stop()
        told = subprocess.run(
            [sys.executable, "-c", SIZES, f"chdb://{folder / 'store'}", "merged"],
            check=True, capture_output=True, text=True, cwd=ROOT,
        ).stdout  # fmt: skip
    size = json.loads(told)
    assert (size["spans"], size["different"]) == (spans, spans), size
    return Result(
        spans, spans / sent["s"], spans / queryable, cpu / spans * 1e6, sent["cpu_s"] / spans * 1e6,
        sum(size["tables"].values()) / spans, spread(watched.rss), sent["sent_away"], size["tables"],
    )  # fmt: skip


def send(url: str, file: Path, connections: int) -> dict[str, float]:
    command = [sys.executable, str(ROOT / "benchmarks/ingest/send.py"), url, str(file), str(connections)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def written(api: str) -> int:
    with urllib.request.urlopen(f"{api}/api/v1/status", timeout=120) as answer:
        return int(json.load(answer)["collector"]["spans"]["written"])


def spread(rss: list[float]) -> tuple[float, ...]:
    """Memory at the beginning, after each tenth of the time, and the most."""
    last = len(rss) - 1
    return tuple(round(x) for x in (*(rss[last * tenth // 10] for tenth in range(11)), max(rss)))


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--spans", type=int, default=1_000_000)
    ask.add_argument("--rows-spans", type=int, default=200_000, help="for the slower route")
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--kind", choices=("eight", "record"), default="eight")
    ask.add_argument("--connections", type=int, default=4)
    ask.add_argument("--routes", default="plain,rows")
    ask.add_argument("--phoenix", type=Path, help="Python of a venv with arize-phoenix")
    ask.add_argument("--phoenix-spans", type=int, default=20_000)
    ask.add_argument("--out", type=Path)
    given = ask.parse_args()
    results: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as text:
        for _ in range(given.rounds):
            for route in given.routes.split(","):
                most = given.rows_spans if route == "rows" else given.spans
                file, spans = make(Path(text) / "bodies", most, given.kind)
                results.setdefault(route, []).append(ours(ROUTES[route], file, spans, given.connections))
                show(route, results[route][-1])
            if given.phoenix:
                from benchmarks.ingest.phoenix import phoenix

                file, spans = make(Path(text) / "bodies", given.phoenix_spans, given.kind)
                results.setdefault("phoenix", []).append(phoenix(given.phoenix, file, spans))
                show("phoenix", results["phoenix"][-1])
    sent = ", ".join(f"{rounds[0].spans:,} by {name}" for name, rounds in results.items())
    told = {
        "machine": machine(), "versions": versions(("stagelens", "chdb")),
        "load": f"{given.rounds} rounds, spans: {sent}; {given.connections} connections; kind: {given.kind}",
        "rows": rows_of(results),
        "results": {name: [asdict(one) for one in rounds] for name, rounds in results.items()},
    }  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def make(file: Path, spans: int, kind: str) -> tuple[Path, int]:
    """The bodies in a file; how many spans they hold."""
    count = 0
    with file.open("wb") as opened:
        for body in bodies(spans, SystemClock().unix_ns() - 3600 * 10**9, kind):
            opened.write(struct.pack("<I", len(body)) + body)
            count += BODY_SPANS
    return file, count


def rows_of(results: dict[str, list[Result]]) -> list[dict[str, object]]:
    """Each contestant's figures, and the ratios of ours to those beside it, a value a round."""
    found: list[dict[str, object]] = []
    for name, rounds in results.items():
        for what, (said, unit, goal) in FIGURES.items():
            values = [getattr(one, what) for one in rounds]
            found.append({"what": f"{name}: {said}", "unit": unit, "values": values,
                          "goal": goal if name == "plain" else ""})  # fmt: skip
        for said, place in (("memory at the start", 0), ("most memory", -1)):
            values = [one.rss_mib[place] for one in rounds]
            found.append({"what": f"{name}: {said}", "unit": "MiB", "values": values})
    for name in [one for one in results if one != "plain" and "plain" in results]:
        for what in ("queryable_per_s", "cpu_us_per_span", "bytes_per_span"):
            pairs = zip(results["plain"], results[name], strict=True)
            values = [getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs]
            found.append({"what": f"plain / {name}: {FIGURES[what][0]}", "values": values})
    return found


def show(name: str, one: Result) -> None:
    print(
        f"{name:8} {one.acknowledged_per_s:>10,.0f} ack/s {one.queryable_per_s:>10,.0f} queryable/s "
        f"{one.cpu_us_per_span:>7.2f} us CPU/span {one.sender_cpu_us_per_span:>6.2f} sender "
        f"{one.bytes_per_span:>6.1f} B/span  RSS {one.rss_mib}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
