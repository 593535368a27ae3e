"""Are the recorded TTFT, TPOT and E2E those that the upstream really had?

The scripted upstream tells when its first and last token really left; at 50 streams
at once each request's record is compared with that. TTFT and E2E of a record hold the
way through the proxy as well, so their difference is what the proxy added; beside them stand
those that the client saw, which hold it too. As in the
overhead benchmark the proxy has one core and the other one has the rest; the first round of
all streams is a warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fake import TOKENS
from run import CORES, HERE, at, load, running, start, wait

from collectors.store.client import open_store
from collectors.store.url import StoreUrl
from stagelens.bench.machine import machine, versions
from tests.support.programs import free_port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, upstream = Path(scratch), free_port()
        told = folder / "told.jsonl"
        fake = start([sys.executable, str(HERE / "fake.py"), str(upstream), str(told)], CORES.other,
                     folder / "fake.log")  # fmt: skip
        wait(upstream, "/v1/models", fake, folder / "fake.log")
        try:
            with running("stagelens", upstream, folder, options) as proxy:
                load(proxy.port, options.streams, options.streams)
                warm_up = len(told.read_text().splitlines())
                seen = load(proxy.port, options.streams, options.requests)
        finally:
            fake.terminate()
            fake.wait(30)
        stored = records(folder / "stagelens")
        truth = [json.loads(line) for line in told.read_text().splitlines()[warm_up:]]
    pairs = [(stored[t["trace_id"]], t) for t in truth]
    gaps = {
        "TTFT": [r["FirstTokenNs"] / 1e6 - t["first_s"] * 1e3 for r, t in pairs],
        "TPOT": [
            r["TpotNs"] / 1e6 - (t["last_s"] - t["first_s"]) * 1e3 / (TOKENS - 1) for r, t in pairs
        ],
        "E2E": [r["E2ENs"] / 1e6 - t["last_s"] * 1e3 for r, t in pairs],
    }
    for name, field, values in (("TTFT", "FirstTokenNs", seen["ttft"]), ("E2E", "E2ENs", seen["e2e"])):
        told = zip(seen["trace_id"], values, strict=True)
        gaps[f"{name} of the client"] = [stored[id_][field] / 1e6 - s * 1e3 for id_, s in told]
    show(gaps)
    if options.out:
        rows = [{"what": f"{name}: record - truth, |p99|", "unit": "ms", "goal": "at most 1",
                 "values": [at([abs(v) for v in values])[1]]} for name, values in gaps.items()]  # fmt: skip
        facts = {"machine": machine(), "versions": versions(("stagelens", "uvloop", "httptools")),
                 "load": CORES.told(f"{options.streams} streams at once, {options.requests} requests, "
                 "a round before as warm-up")}  # fmt: skip
        options.out.write_text(json.dumps({**facts, "rows": rows}, indent=2))
    return 0


def records(data: Path) -> dict[str, dict[str, float]]:
    """The stored figures of each request by trace id; the collector has ended."""
    store = open_store(StoreUrl.parse(f"chdb://{data}"))
    try:
        rows = store.query(
            f"SELECT TraceId, FirstTokenNs, TpotNs, E2ENs FROM {store.database}.requests "
            "WHERE Operation = 'chat'", {},
        )  # fmt: skip
    finally:
        store.close()
    return {str(row["TraceId"]): row for row in rows}  # type: ignore[misc]


def show(gaps: dict[str, list[float]]) -> None:
    print(f"{'record - truth, ms':<22}{'n':>5}{'p50':>9}{'|p99|':>9}{'|max|':>9}   goal |p99| <= 1")
    for name, values in gaps.items():
        middle, _ = at(values)
        _, p99 = at([abs(v) for v in values])
        print(f"{name:<22}{len(values):>5}{middle:>9.3f}{p99:>9.3f}{max(map(abs, values)):>9.3f}")


if __name__ == "__main__":
    sys.exit(main())
