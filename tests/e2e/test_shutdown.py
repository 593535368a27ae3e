"""The last test of the shared server: it is stopped while it works."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from tests.e2e.conftest import MODEL, stop_server
from tests.support import raw_client

pytestmark = pytest.mark.engine


def test_sigterm_with_requests_in_flight_loses_no_record(served):
    """Running requests are cut at the deadline, each leaves one cancelled record, exit 0."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 900,
            "ignore_eos": True}  # fmt: skip

    async def load() -> None:
        tasks = [
            asyncio.create_task(
                raw_client.post(
                    served.port, "/v1/chat/completions", {**body, "stream": n % 2 == 0},
                    x_stagelens_tags="run=cut",
                )
            )
            for n in range(4)
        ]  # fmt: skip
        await asyncio.sleep(0.5)
        assert await asyncio.to_thread(stop_server, served) == 0
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(load())
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--data-dir", str(served.data_dir),
         "--run", "cut", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(made.stdout)["requests"]
    assert [(r["status"], r["error_type"]) for r in found] == [("cancelled", "shutdown")] * 4
