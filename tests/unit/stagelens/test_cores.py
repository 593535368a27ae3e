"""The collector leaves the engine its cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagelens.cores import free_cores, stay_on

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
OWN = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
pytestmark = pytest.mark.skipif(len(OWN) < 2, reason="needs Linux and two cores to choose from")


@pytest.fixture
def start():
    """Child processes that end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def one(code: str = SLEEPER) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        running.append(made)
        assert made.stdout.readline() == b"up\n"
        return made

    yield one
    for process in running:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def test_the_free_cores_are_those_no_worker_is_bound_to(start):
    """A worker on one core leaves the others; the collector's own binding does not count."""
    core = min(OWN)
    worker, collector = start(), start()
    os.sched_setaffinity(worker.pid, {core})
    os.sched_setaffinity(collector.pid, {max(OWN)})
    assert free_cores(os.getpid(), but=collector.pid) == OWN - {core}


def test_without_bound_workers_nothing_is_chosen(start):
    """An engine on a GPU binds nothing: the collector runs where it likes."""
    start()
    assert free_cores(os.getpid()) == set()


def test_all_threads_of_a_process_are_kept_on_the_cores(start):
    """Those that run already, and a process that is gone is no error."""
    threads = start(
        "import sys, threading; t = threading.Thread(target=lambda: sys.stdin.read()); t.start(); "
        "print('up', flush=True); t.join()"
    )
    stay_on(threads.pid, {max(OWN)})
    tasks = [entry.name for entry in Path(f"/proc/{threads.pid}/task").iterdir()]
    found = [os.sched_getaffinity(int(t)) for t in tasks]
    assert len(found) == 2
    assert all(cores == {max(OWN)} for cores in found)
    end(threads)
    stay_on(threads.pid, {max(OWN)})
