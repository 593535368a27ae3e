"""One real engine for all end-to-end tests: `stagelens serve` as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dashboards.client import CollectorClient
from tests.support import stat_plugin
from tests.support.tiny_model import make_tiny_model

START_LIMIT_S = 600
MODEL = "tiny"


@dataclass
class Served:
    """A running `stagelens serve` on a tiny real model."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    proxy: str
    api: str
    stats_file: Path

    @property
    def port(self) -> int:
        return urlsplit(self.proxy).port or 0

    @property
    def source(self) -> CollectorClient:
        return CollectorClient(self.api)

    def engine_core_pid(self) -> int:
        """The engine core: vLLM's child process of the proxy."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text()
                    name = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                parent = int(stat.rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid and b"EngineCore" in name:
                    return int(entry.name)
        raise AssertionError("the engine core's process was not found")

    def stored(self, count: int, within_s: float = 20.0, **filters: object) -> list[object]:
        """The stored requests of a tag, once there are ``count``."""
        from dashboards.filters import parse_filters

        give_up = time.monotonic() + within_s
        while True:
            found = self.source.requests(
                parse_filters(now_unix_ns=time.time_ns(), since="1h", **filters),  # noqa: TID251
                limit=1000,
            ).requests
            if len(found) >= count or time.monotonic() > give_up:
                return list(found)
            time.sleep(0.2)


def stored_in(served: Served) -> list[dict[str, object]]:
    """The requests in the store of a server that has ended."""
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--store",
         f"chdb://{served.data_dir}/store", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: list[dict[str, object]] = json.loads(made.stdout)["requests"]
    return found


def start_server(
    folder: Path, model: Path, *flags: str, config: Path | None = None
) -> Served:
    """`stagelens serve` with free ports, ready to be used."""
    plugin = stat_plugin.install(folder / "plugin")
    stats = folder / "stats.jsonl"
    stats.touch()
    ready = folder / "ready.json"
    environment = {
        **os.environ, "PYTHONPATH": str(plugin), "STAGELENS_TEST_STATS": str(stats),
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    words = (folder / "serve.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "stagelens", "serve", "--model", str(model), "--port", "0",
         "--otlp-port", "0", "--api-port", "0", "--data-dir", str(folder / "data"),
         *(["--config", str(config)] if config is not None else []),
         "--ready-file", str(ready), "--shutdown-timeout", "2", "--warm-after", "0", "--",
         "--max-model-len", "1024", "--enforce-eager", "--dtype", "float32",
         "--served-model-name", MODEL, *flags],
        env=environment, stderr=words,
    )  # fmt: skip
    give_up = time.monotonic() + START_LIMIT_S
    while not ready.exists():
        said = (folder / "serve.log").read_text()
        assert process.poll() is None, f"the server ended while it was starting: {said}"
        assert time.monotonic() < give_up, f"the server was not ready in time: {said}"
        time.sleep(0.1)
    facts = json.loads(ready.read_text())
    return Served(process, folder / "data", facts["proxy"], facts["api"], stats)


def stop_server(served: Served) -> int:
    """SIGTERM and the exit code."""
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGTERM)
    return served.process.wait(60)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """Two layers, random weights, made here."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def served(tiny_model, tmp_path_factory) -> Iterator[Served]:
    """The one shared server."""
    one = start_server(tmp_path_factory.mktemp("served"), tiny_model)
    yield one
    assert stop_server(one) == 0
