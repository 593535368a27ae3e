"""The real `stagelens collect` as a process that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from stagelens.ready import read_ready

COUNT = """
import json, sys
from collectors.store.client import open_store
from collectors.store.url import StoreUrl
store = open_store(StoreUrl.parse(sys.argv[1]))
rows = store.query("SELECT count() AS n, uniqExact(SpanId) AS u FROM otel.otel_traces", {})
print(json.dumps(rows[0]))
store.close()
"""


class Collector:
    """One process over ``folder``; a later one goes on where a killed one was.

    ``wrap`` is a command that runs what is added to it, as its own process or a child.
    """

    def __init__(
        self, folder: Path, extra: str = "", wrap: Sequence[str] = (), store: Path | None = None
    ) -> None:
        self.store_url = f"chdb://{store or folder / 'store'}"
        ready = folder / "ready.json"
        config = folder / "config.yaml"
        config.write_text("collect: {batch_interval_s: 0.05" + extra + "}\n", encoding="utf-8")
        self.process = subprocess.Popen(
            [
                *wrap, sys.executable, "-m", "stagelens", "collect", "--store", self.store_url,
                "--otlp-port", "0", "--api-port", "0", "--ready-file", str(ready),
                "--config", str(config),
            ],
            stderr=(folder / "log").open("ab"),
        )  # fmt: skip
        facts = None
        ends = time.monotonic() + 60
        while facts is None or (not wrap and facts["pid"] != self.process.pid):
            assert self.process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < ends
            time.sleep(0.02)
            facts = read_ready(ready)
        self.otlp, self.api, self.pid = facts["collector"], facts["api"], int(facts["pid"])

    def counts(self) -> dict[str, object]:
        told = httpx.get(f"{self.api}/api/v1/status", timeout=30).json()["collector"]["spans"]
        assert isinstance(told, dict)
        return told

    def settle(self) -> dict[str, object]:
        ends = time.monotonic() + 60
        while (now := self.counts())["in_flight"]:
            assert time.monotonic() < ends, now
            time.sleep(0.05)
        return now

    def end(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)
        self.process.wait(30)


def stored(store_url: str) -> tuple[int, int]:
    """Spans in the store of a collector that has ended, and how many of them differ."""
    told = subprocess.run(
        [sys.executable, "-c", COUNT, store_url], capture_output=True, check=True, text=True
    )
    row = json.loads(told.stdout)
    return int(row["n"]), int(row["u"])
