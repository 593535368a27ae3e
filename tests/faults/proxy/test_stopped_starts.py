"""`stagelens serve` told to stop while it starts: one sentence, and nothing that it started stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from proxy.pipelines.tools.mcp_sift import Said
from proxy.pipelines.tools.mcp_stdio import limited_stdio
from tests.support.held import children_of, ended

STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
"""Neither the end of its input nor SIGTERM ends it."""


def serving(folder: Path, *more: str, timeout_s: float = 60) -> subprocess.Popen[str]:
    tool = {"kind": "mcp", "command": [sys.executable, "-c", STUBBORN, str(folder / "pid")],
            "tools": ["x"], "connect_timeout_s": timeout_s}  # fmt: skip
    (folder / "c.yaml").write_text(
        json.dumps({"pipelines": {"p": {"model": "m", "tools": [tool]}}})
    )
    return subprocess.Popen(
        [sys.executable, "-m", "stagelens", "serve", "--upstream", "http://127.0.0.1:9", "--config",
         str(folder / "c.yaml"), "--port", "0", "--data-dir", str(folder / "data"), *more],
        stderr=subprocess.PIPE, text=True, cwd=Path.cwd(),
    )  # fmt: skip


def _in(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def noted(file: Path) -> int:
    ends = asyncio.get_running_loop().time() + 40
    while not (told := _in(file)):
        assert asyncio.get_running_loop().time() < ends, "the program was not started"
        await asyncio.sleep(0.01)
    return int(told)


async def said_by(process: subprocess.Popen[str], number: signal.Signals, times: int = 2) -> str:
    """What it says that gets the signal ``times`` times, as `timeout` and terminals send it."""
    for _ in range(times):
        process.send_signal(number)
        await asyncio.sleep(0.05)
    said = (await asyncio.to_thread(process.communicate, timeout=30))[1]
    assert process.returncode == 130, said
    return said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_that_is_starting_ends_with_the_start(
    tmp_path: Path, number: signal.Signals
):
    """Also one that does not end by itself, and where the signal comes twice."""
    process = serving(tmp_path, "--collector", "http://127.0.0.1:9")
    program = await noted(tmp_path / "pid")
    assert await said_by(process, number) == "stagelens: stopped before it served\n"
    await ended(program, 0)


async def test_a_program_that_is_being_ended_for_its_silence_ends_too(tmp_path: Path):
    """The signal comes while the program, whose time is over, is given seconds to end."""
    process = serving(tmp_path, "--collector", "http://127.0.0.1:9", timeout_s=0.5)
    program = await noted(tmp_path / "pid")
    await asyncio.sleep(1)
    assert await said_by(process, signal.SIGTERM) == "stagelens: stopped before it served\n"
    await ended(program, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_collector_that_is_starting_ends_with_the_start(
    tmp_path: Path, number: signal.Signals
):
    """It is waited for, and says nothing on the terminal."""
    process = serving(tmp_path, "--otlp-port", "0", "--api-port", "0")
    ends = asyncio.get_running_loop().time() + 40
    while not (children := children_of(process.pid)):
        assert asyncio.get_running_loop().time() < ends, "no collector was started"
        await asyncio.sleep(0.005)
    assert await said_by(process, number) == "stagelens: stopped before it served\n"
    for child in children:
        await ended(child, 0)
    assert not (tmp_path / "pid").exists()


async def test_a_start_that_is_cut_off_at_any_turn_of_the_loop_leaves_no_program(tmp_path: Path):
    """Cancelled, and once more while the program is being ended."""
    before = children_of(os.getpid())

    async def begin() -> None:
        async with limited_stdio(
            [sys.executable, "-S", "-c", STUBBORN, str(tmp_path / "pid")], {}, 1000,
            lambda: None, deque(), Said(),
        ):  # fmt: skip
            await asyncio.Event().wait()

    for turns in range(12):
        begun = asyncio.create_task(begin())
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        await asyncio.wait({begun}, timeout=0.05)
        begun.cancel()
        await asyncio.wait({begun}, timeout=5)
        assert begun.done()
        for child in children_of(os.getpid()) - before:
            await ended(child, 1)
