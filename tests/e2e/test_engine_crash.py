"""The engine core is killed while it works: clients are told, records are kept, it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.conftest import MODEL, start_server
from tests.support import raw_client

pytestmark = pytest.mark.engine
LONG = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 900,
        "ignore_eos": True}  # fmt: skip


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
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--store",
         f"chdb://{served.data_dir}/store", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(made.stdout)["requests"]
    assert {r["trace_id"] for r in found} == {streamed.trace_id, plain.trace_id}
    assert [r["status"] for r in found] == ["error", "error"]
