"""The engine core is killed while it works: clients are told, records are kept, it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import MODEL, Served, start_server
from tests.support import raw_client

pytestmark = pytest.mark.engine
LONG = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 900,
        "ignore_eos": True}  # fmt: skip


def descendants(pid: int) -> set[int]:
    """All processes below ``pid``."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
    found, last = {pid}, set()
    while found != last:
        last = set(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def test_a_killed_proxy_leaves_no_process_behind_and_its_finished_records_are_stored(
    tiny_model, tmp_path
):
    """kill -9 of the proxy: the engine's processes and the collector end, the store is whole."""
    served = start_server(tmp_path, tiny_model)
    seen = asyncio.run(
        raw_client.post(served.port, "/v1/chat/completions", {**LONG, "max_tokens": 4})
    )
    assert len(served.stored(1)) == 1
    below = descendants(served.process.pid)
    assert served.engine_core_pid() in below
    os.kill(served.process.pid, signal.SIGKILL)
    served.process.wait(10)
    give_up = time.monotonic() + 30
    while alive := {p for p in below if Path(f"/proc/{p}/exe").exists()}:
        names = {p: Path(f"/proc/{p}/cmdline").read_bytes()[:80] for p in alive}
        assert time.monotonic() < give_up, f"still there: {names}"
        time.sleep(0.1)
    assert [r["trace_id"] for r in stored(served)] == [seen.trace_id]


def stored(served: Served) -> list[dict[str, object]]:
    """The requests in the store of a server that has ended."""
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--store",
         f"chdb://{served.data_dir}/store", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: list[dict[str, object]] = json.loads(made.stdout)["requests"]
    return found


def test_a_killed_engine_leaves_error_records_and_exit_code_1(tiny_model, tmp_path):
    """kill -9 of the engine core with requests in flight: one error record each, exit 1."""
    served = start_server(tmp_path, tiny_model)
    path = "/v1/chat/completions"

    async def load() -> list[raw_client.Seen]:
        tasks = [
            asyncio.create_task(
                raw_client.post(served.port, path, {**LONG, "stream": n == 0})
            )
            for n in range(2)
        ]
        await asyncio.sleep(1.0)
        os.kill(served.engine_core_pid(), signal.SIGKILL)
        return await asyncio.gather(*tasks)

    streamed, plain = asyncio.run(load())
    assert served.process.wait(60) == 1
    assert plain.status == 500
    assert b"EngineDeadError" in plain.body or b"EngineCore" in plain.body
    assert b"has no attribute" not in plain.body
    assert b'"error"' in streamed.body
    said = (tmp_path / "serve.log").read_text()
    assert "the engine died" in said
    assert "Traceback" not in said
    found = stored(served)
    assert {r["trace_id"] for r in found} == {streamed.trace_id, plain.trace_id}
    assert [r["status"] for r in found] == ["error", "error"]
