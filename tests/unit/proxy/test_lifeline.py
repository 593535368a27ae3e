"""Processes of the engine do not outlive the proxy, however it ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.engine.lifeline import end_children

PR_GET_PDEATHSIG = 2
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux signals children")
PARENT = """
import os, subprocess, sys
from proxy.engine.lifeline import own_engine
own_engine()
child = subprocess.Popen([sys.executable, "-c", '''
import time
from proxy.engine.lifeline import end_with_parent
end_with_parent()
print("armed", flush=True)
time.sleep(600)
'''], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def _deaf(ready: multiprocessing.synchronize.Event) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)


def test_a_child_that_does_not_heed_sigterm_is_killed_in_time():
    """The interpreter's exit would wait for it for ever."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=_deaf, args=(ready,))
    child.start()
    assert ready.wait(60)
    end_children(grace_s=0.2)
    assert child.exitcode == -signal.SIGKILL


@LINUX
def test_a_child_ends_when_its_parent_is_killed():
    """SIGKILL of the proxy: the engine's process has SIGKILL from the kernel."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child = int(parent.stdout.readline())
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    parent.wait(10)
    give_up = time.monotonic() + 20
    while Path(f"/proc/{child}/exe").exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    parent.stdin.close()
    parent.stdout.close()


@LINUX
def test_outside_a_proxys_engine_nothing_changes(monkeypatch):
    """The plugin is loaded by any vLLM of the environment and must leave it alone."""
    from proxy.engine import lifeline

    monkeypatch.delenv(lifeline.OWNER, raising=False)
    lifeline.end_with_parent()
    monkeypatch.setenv(lifeline.OWNER, str(os.getpid()))
    lifeline.end_with_parent()
    asked = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(asked))
    assert asked.value == 0
