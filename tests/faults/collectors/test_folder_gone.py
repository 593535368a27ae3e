"""The store's folder goes away under a running collector; a start that is ended early."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import httpx
import pytest

from tests.faults.collectors.live_collector import Collector, stored
from tests.support.otlp import request, span
from tracer.clock import SystemClock

PROTOBUF = {"content-type": "application/x-protobuf"}


def post(collector: Collector, n: int) -> int:
    body = request(span(n, SystemClock().unix_ns())).SerializeToString()
    answer = httpx.post(f"{collector.otlp}/v1/traces", content=body, headers=PROTOBUF, timeout=30)
    return answer.status_code


def test_rows_are_not_counted_as_written_into_a_folder_that_is_gone(tmp_path):
    """Moved away: taken into the spool, in flight, said in one sentence; moved back: written."""
    collector = Collector(tmp_path)
    assert post(collector, 1) == 200
    collector.settle()
    store, away = tmp_path / "store", tmp_path / "away"
    store.rename(away)
    assert post(collector, 2) == 200
    time.sleep(0.3)  # several write intervals
    answer = httpx.get(f"{collector.api}/api/v1/status", timeout=30)
    assert answer.status_code >= 500
    assert f"store folder {store} was moved or deleted" in answer.json()["detail"]
    assert "Code:" not in answer.text
    assert not store.exists()
    away.rename(store)
    now = collector.settle()
    assert (now["received"], now["written"]) == (2, 2)
    collector.end()
    assert stored(collector.store_url) == (2, 2)


@pytest.mark.parametrize("after_s", [0.5, 1.5, 2.5])
def test_a_start_that_is_ended_leaves_no_ready_file(tmp_path, after_s):
    """SIGTERM while it starts: no file says that a collector runs."""
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "stagelens", "collect", "--store", f"chdb://{tmp_path / 'store'}",
            "--otlp-port", "0", "--api-port", "0", "--ready-file", str(ready),
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert not ready.exists()
    assert not ready.with_name("ready.json.partial").exists()
