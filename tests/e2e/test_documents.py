"""Documents from the command line to the model's prompt, before a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.e2e.test_upstream import wait_for
from tests.fake_llm.dialects import chat
from tests.fake_llm.server import fake_llm

CONFIG = {
    "pipelines": {
        "rag": {
            "model": "m",
            "system_prompt": "Help. {documents}",
            "retrievers": [{"kind": "documents", "name": "store", "collection": "t", "top_k": 1}],
        }
    }
}
TOKEN = "a-token-of-the-api-0123456789"


async def stagelens(*arguments: str) -> str:
    """Run a command beside the event loop; its output."""
    command = [sys.executable, "-m", "stagelens", *arguments]
    environment = {**os.environ, "STAGELENS_API_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1"}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_was_added_while_it_serves_is_in_the_next_prompt(tmp_path: Path):
    """The local model finds the text by its meaning, through a collector that asks for a token."""
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "cat.txt").write_text("The kitten naps on the rug.")
    (tmp_path / "ship.txt").write_text("The vessel left the harbour at dawn.")
    data, ready = str(tmp_path / "d"), tmp_path / "ready.json"
    async with fake_llm(lambda _: chat(tokens=3)) as fake, httpx.AsyncClient(timeout=60) as client:
        server = subprocess.Popen(
            [sys.executable, "-m", "stagelens", "serve", "--upstream", fake.url, "--port", "0",
             "--otlp-port", "0", "--api-port", "0", "--data-dir", data,
             "--config", str(tmp_path / "config.yaml"), "--ready-file", str(ready)],
            env={**os.environ, "STAGELENS_API_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1",
                 "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
        try:
            await wait_for(ready.exists, 300)
            url = json.loads(ready.read_text())["proxy"] + "/v1/chat/completions"
            question = {"model": "rag", "stream": True, "messages": [
                {"role": "user", "content": "Where does the cat sleep?"}]}  # fmt: skip
            empty = await client.post(url, json=question)
            assert empty.status_code == 502
            assert "fill it with `stagelens documents add`" in empty.json()["error"]["message"]
            await stagelens("documents", "add", str(tmp_path / "cat.txt"), str(tmp_path / "ship.txt"),
                            "--collection", "t", "--data-dir", data)  # fmt: skip
            assert (await client.post(url, json=question)).status_code == 200
        finally:
            server.send_signal(signal.SIGTERM)
            assert await wait_for(lambda: server.poll() is not None, 60)
    assert server.returncode == 0
    system = json.loads(fake.requests[-1].body)["messages"][0]["content"]
    assert "The kitten naps on the rug." in system
    assert "vessel" not in system
    told = json.loads(await stagelens("requests", "--data-dir", data, "--format", "json"))
    assert sorted(one["status"] for one in told["requests"]) == ["error", "ok"]
