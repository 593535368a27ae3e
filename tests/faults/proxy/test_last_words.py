"""What `stagelens serve` leaves on the terminal when it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path


async def _line_with(process: subprocess.Popen[str], word: str) -> str:
    assert process.stderr is not None
    said = ""
    while word not in said:
        line = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), 60)
        assert line, said
        said += line
    return said


async def test_a_pipeline_that_embeds_here_leaves_no_complaints_of_libraries(tmp_path: Path):
    """They complain of leaks at the very end; that is for the log. A second signal changes nothing."""
    one = {"kind": "documents", "name": "d", "embedding": {"kind": "local"},
           "collector_api": "http://127.0.0.1:9"}  # fmt: skip
    config = {"pipelines": {"p": {"model": "m", "retrievers": [one]}}}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    with subprocess.Popen(
        [sys.executable, "-m", "stagelens", "serve", "--upstream", "http://127.0.0.1:9", "--config",
         str(tmp_path / "c.yaml"), "--port", "0", "--collector", "http://127.0.0.1:9",
         "--data-dir", str(tmp_path / "data")],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        await _line_with(process, "ready on")
        for _ in range(2):  # as `timeout` sends it
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.05)
        rest = await asyncio.to_thread(process.stderr.read)
    assert process.returncode == 0
    assert "nanobind" not in rest
    assert all(line.startswith("stagelens: ") for line in rest.splitlines())
