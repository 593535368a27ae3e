"""A client that may open few files: what it could not send is its own fault, and no answer hangs."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys

import pytest

from tests.support.load_target import answer, load_target, tags_of

FILES = 40


@pytest.mark.skipif(sys.platform != "linux", reason="a second descriptor is taken on Linux alone")
async def test_a_client_without_descriptors_tells_what_it_could_not_send():
    """None is waited for until its time-out, those that had a socket are answered."""
    def script(asked):
        measured = tags_of(asked).get("run")
        return answer(asked, ttft_s=1.0 if measured else 0.0)

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    async with load_target(script) as fake:
        made = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stagelens", "bench", "--url", fake.url, "--model", "m", "--rate",
            "400", "--requests", "60", "--warmup", "0", "--input", "20", "--output", "3", "--quiet",
            "--format", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ),
            preexec_fn=few,
        )  # fmt: skip
        out, err = await asyncio.wait_for(made.communicate(), 60)
    [level] = json.loads(out)["levels"]
    assert (made.returncode, err.decode()) == (0, "")
    assert set(level["counts"]["errors"]) == {"client_limit"}
    assert level["counts"]["ok"] >= 5
    assert level["counts"]["ok"] + level["counts"]["failed"] == 60
