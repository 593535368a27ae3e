"""The demo's server, and what is told when it does not start."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from examples.demo.load import Seen
from examples.demo.plan import Ask
from examples.demo.run import near_p95
from examples.demo.server import DemoError, Server

ROOT = Path(__file__).resolve().parents[3]


def test_a_server_that_does_not_start_gives_its_own_reason(tmp_path):
    """The child's one sentence is passed on, and stopping what has ended does nothing."""
    console = Console(file=io.StringIO())
    server = Server(str(tmp_path / "absent"), tmp_path / "data", tmp_path)
    assert server.stop(console) == 0
    server.start()
    with pytest.raises(DemoError) as caught:
        server.wait_ready(console)
    said = server.instead_of(caught.value)
    assert "the server ended with exit code 2" in said
    assert "does not exist" in said
    assert "stagelens: error" not in said
    assert server.stop(console) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_its_server(tmp_path, number):
    """Stopped while the engine starts: the conventional exit code, no traceback, no child left."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    demo = subprocess.Popen(
        [sys.executable, "examples/demo/run.py", "--model", str(model), "--data-dir",
         str(tmp_path / "data")],
        cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    child = _first_child(demo)
    demo.send_signal(number)
    _, said = demo.communicate(timeout=30)
    assert demo.returncode == 128 + number, said
    assert "Traceback" not in said
    assert said.strip().endswith("demo: stopped")
    assert not Path(f"/proc/{child}").exists()


def _first_child(process: subprocess.Popen[str], within_s: float = 30) -> int:
    give_up = time.monotonic() + within_s
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < give_up:
        for pid in children.read_text().split():
            if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return int(pid)
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    raise AssertionError("the demo started no server")


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_the_shown_request_is_one_of_the_slowest(times):
    """It exists for any number of requests, and at most one in twenty is slower."""
    ask = Ask("c1", "chat", "", 4, stream=True, temperature=0)
    chosen = near_p95([Seen(ask, e2e_ns=t) for t in times])
    slower = sum(t > chosen.e2e_ns for t in times)
    assert slower <= len(times) / 20 + 1
