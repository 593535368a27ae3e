"""`stagelens serve --upstream` as a user starts it, before a scripted server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import openai

from tests.fake_llm.dialects import chat
from tests.fake_llm.server import fake_llm


async def test_a_stream_through_the_command_is_recorded_with_true_times(tmp_path):
    """Scripted first token at 0.2 s and 0.05 s a token: the report says so, exit 0."""
    async with fake_llm(lambda _: chat(tokens=5, ttft_s=0.2, itl_s=0.05)) as fake:
        ready = tmp_path / "ready.json"
        server = subprocess.Popen(
            [sys.executable, "-m", "stagelens", "serve", "--upstream", fake.url, "--port", "0",
             "--otlp-port", "0", "--api-port", "0", "--data-dir", str(tmp_path / "d"),
             "--ready-file", str(ready)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"}, stderr=subprocess.PIPE,
        )  # fmt: skip
        await wait_for(ready.exists, 60)
        facts = json.loads(ready.read_text())
        async with openai.AsyncOpenAI(
            base_url=facts["proxy"] + "/v1", api_key="sk-CANARY", max_retries=0
        ) as client:
            began = time.monotonic()
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
            took_ns = (time.monotonic() - began) * 1e9
        assert text == "t0 t1 t2 t3 t4 "
        server.send_signal(signal.SIGTERM)
        assert await wait_for(lambda: server.poll() is not None, 30)
        assert server.returncode == 0
        assert b"Traceback" not in server.stderr.read()
    made = subprocess.run(
        [sys.executable, "-m", "stagelens", "requests", "--data-dir", str(tmp_path / "d"),
         "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    [record] = json.loads(made.stdout)["requests"]
    assert record["status"] == "ok"
    assert 0.19e9 < record["ttft_ns"] < record["e2e_ns"]
    assert 0.39e9 < record["e2e_ns"] <= took_ns
    assert record["output_tokens"] == 5
    for file in (tmp_path / "d").rglob("*"):
        if file.is_file():
            assert b"CANARY" not in file.read_bytes(), file


async def wait_for(true: object, within_s: float) -> bool:
    """Poll a condition of another process."""
    import asyncio

    give_up = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < give_up, "it did not come true in time"
        await asyncio.sleep(0.05)
    return True
