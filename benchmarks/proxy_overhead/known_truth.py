"""Are the recorded TTFT, TPOT and E2E those that the upstream really had?

The scripted upstream tells when its first and last token really left; at 50 streams
at once each request's record is compared with that. TTFT and E2E of a record hold the
way through the proxy as well, so their difference is what the proxy added.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fake import TOKENS
from run import HERE, LOAD_CORE, PROXY_CORE, at, free_port, load, start, wait

from collectors.store.client import open_store
from collectors.store.url import StoreUrl


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, upstream, port = Path(scratch), free_port(), free_port()
        told = folder / "told.jsonl"
        fake = start([sys.executable, str(HERE / "fake.py"), str(upstream), str(told)], LOAD_CORE,
                     folder / "fake.log")  # fmt: skip
        wait(upstream, "/v1/models", fake, folder / "fake.log")
        proxy = start(
            [sys.executable, "-m", "stagelens", "serve", "--upstream",
             f"http://127.0.0.1:{upstream}", "--port", str(port), "--otlp-port", "0", "--api-port",
             "0", "--usage", "--data-dir", str(folder / "data")], PROXY_CORE, folder / "proxy.log",
        )  # fmt: skip
        try:
            wait(port, "/v1/models", proxy, folder / "proxy.log")
            load(port, options.streams, options.requests)
        finally:
            for one in (proxy, fake):
                one.send_signal(signal.SIGTERM)
                one.wait(30)
        stored = records(folder / "data")
        truth = [json.loads(line) for line in told.read_text().splitlines()]
    pairs = [(stored[t["trace_id"]], t) for t in truth]
    show(
        {
            "TTFT": [r["FirstTokenNs"] / 1e6 - t["first_s"] * 1e3 for r, t in pairs],
            "TPOT": [
                r["TpotNs"] / 1e6
                - (t["last_s"] - t["first_s"]) * 1e3 / (TOKENS - 1)
                for r, t in pairs
            ],
            "E2E": [r["E2ENs"] / 1e6 - t["last_s"] * 1e3 for r, t in pairs],
        }
    )
    return 0


def records(data: Path) -> dict[str, dict[str, float]]:
    """The stored figures of each request by trace id; the server has ended."""
    store = open_store(StoreUrl.parse(f"chdb://{data}/store"))
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
