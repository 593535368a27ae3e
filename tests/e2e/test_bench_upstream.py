"""`stagelens bench` before `stagelens serve --upstream`: both sides, runs, a replay."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter

from tests.e2e.test_upstream import wait_for
from tests.support.load_target import answer, load_target, tags_of


async def command(*options: str) -> str:
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stagelens", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(made.communicate(), 120)
    assert made.returncode == 0, err.decode()
    return out.decode()


async def test_a_run_and_its_replay_are_in_the_store_with_both_sides_figures(tmp_path):
    """Each request is found by its trace; the replay has the same lengths and begins as alike."""
    ready = tmp_path / "ready.json"
    async with load_target(lambda asked: answer(asked, ttft_s=0.02, itl_s=0.01)) as fake:
        server = subprocess.Popen(
            [sys.executable, "-m", "stagelens", "serve", "--upstream", fake.url, "--port", "0",
             "--otlp-port", "0", "--api-port", "0", "--data-dir", str(tmp_path / "d"),
             "--ready-file", str(ready)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await wait_for(ready.exists, 120)
            facts = json.loads(ready.read_text())
            common = ("bench", "--url", facts["proxy"], "--collector", facts["api"], "--warmup", "0",
                      "--quiet", "--format", "json")  # fmt: skip
            first = json.loads(await command(
                *common, "--rate", "20", "--requests", "20", "--name", "first", "--input",
                "uniform:80,120", "--output", "uniform:2,6", "--prefix-share", "1", "--prefixes", "3",
                "--prefix-tokens", "60",
            ))  # fmt: skip
            second = json.loads(await command(*common, "--replay", "first", "--name", "second"))
            report = json.loads(await command(
                "report", "--run", "second", "--collector", facts["api"], "--format", "json"
            ))  # fmt: skip
        finally:
            server.send_signal(signal.SIGTERM)
            await asyncio.to_thread(server.wait, 60)
    sent = [json.loads(asked.body) for asked in fake.requests if "run" in tags_of(asked)]
    begun = [" ".join(one["messages"][0]["content"].split()[:30]) for one in sent]
    of_each = [sorted(Counter(part).values()) for part in (begun[:20], begun[20:])]
    assert (len(of_each[0]), of_each[1]) == (3, of_each[0])  # begin alike as they did
    for told in (first, second):
        [level] = told["levels"]
        assert (level["counts"]["ok"], level["server"]["found"]) == (20, 20)
        assert level["server"]["before"]["p50_ns"] > 0
        assert "clock" not in " ".join(level["server"]["reading"])  # both of one boot
    assert report["overall"]["counts"]["total"] == 20
    totals = ("input_tokens", "output_tokens")
    lengths = [[told["levels"][0][name] for name in totals] for told in (first, second)]
    assert lengths[0] == lengths[1]
    assert second["levels"][0]["inputs_as_meant"] == second["levels"][0]["outputs_as_meant"] == 20
