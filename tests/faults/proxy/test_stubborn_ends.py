"""`stagelens serve` ends when it is told to, whatever its functions do."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.fake_llm.dialects import asks_tools
from tests.fake_llm.server import fake_llm
from tests.support.held import children_of, ended
from tests.support.pipelines import ANSWER, CHAT, USER, bot, in_turn, retriever, tool

SERVE = (sys.executable, "-m", "stagelens", "serve", "--port", "0", "--otlp-port", "0", "--grpc-port",
         "0", "--api-port", "0", "--shutdown-timeout", "1")  # fmt: skip


async def ready(file: Path, process: subprocess.Popen[str]) -> dict[str, str]:
    ends = asyncio.get_running_loop().time() + 60
    while not file.exists():  # noqa: ASYNC240  written once it serves
        assert process.poll() is None, process.communicate()[1]
        assert asyncio.get_running_loop().time() < ends, "it did not start"
        await asyncio.sleep(0.05)
    return json.loads(file.read_text())  # type: ignore[no-any-return]  # noqa: ASYNC240


BEHIND = {
    "stay": "no cancel ends it: .*tests.support.pipeline_functions:stay",
    "stay_finding": "no cancel ends it: .*tests.support.pipeline_functions:stay_finding",
    "stay_in_a_thread": "threads of asyncio.to_thread that go on: 1",
}


@pytest.mark.parametrize("name", list(BEHIND))
async def test_a_function_that_does_not_end_does_not_keep_the_server(tmp_path: Path, name: str):
    """One line says what is left behind, the collector ends too, and no record is lost."""
    is_tool = name != "stay_finding"
    settings = (
        bot(tools=[tool(name, timeout_s=0.2)])
        if is_tool
        else bot(retrievers=[retriever("r", name, timeout_s=0.2, on_error="skip")])
    )
    (tmp_path / "c.yaml").write_text(json.dumps({"pipelines": settings}))
    rounds = [asks_tools((name, "{}")), ANSWER] if is_tool else [ANSWER]
    async with fake_llm(in_turn(*rounds)) as fake, httpx.AsyncClient(timeout=30) as client:
        process = subprocess.Popen(
            [*SERVE, "--upstream", fake.url, "--config", str(tmp_path / "c.yaml"), "--data-dir",
             str(tmp_path / "data"), "--ready-file", str(tmp_path / "ready")],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            facts = await ready(tmp_path / "ready", process)
            children = children_of(process.pid)
            body = {"model": "bot", "messages": USER, "stream": True}
            answer = await client.post(facts["proxy"] + CHAT, json=body)
            assert answer.status_code == 200
            process.send_signal(signal.SIGTERM)
            said = (await asyncio.to_thread(process.communicate, timeout=30))[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    [line] = [one for one in said.splitlines() if "left behind at the end" in one]
    assert re.search(BEHIND[name] + "$", line)
    for child in children:
        await ended(child)
    told = await asyncio.to_thread(_requests, tmp_path / "data")
    assert answer.headers["x-stagelens-trace-id"] in told


def _requests(folder: Path) -> str:
    """The records of the store, as they can be read afterwards."""
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--data-dir", str(folder), "--format", "json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return made.stdout
