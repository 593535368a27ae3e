"""Keeping the collector off the cores that an engine's workers are bound to.

vLLM on a CPU binds each worker's threads to cores of their own and leaves the others
free. The kernel does not know that: it moves a collector's thread to a worker's core
whenever the free ones are busy, and each token of that step waits for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def free_cores(pid: int, but: int | None = None) -> set[int]:
    """Cores of ``pid`` to which no process below it is bound; empty where none is bound.

    ``but`` is a child that does not count, nor what is below it. Linux only; empty elsewhere.
    """
    if not sys.platform.startswith("linux"):
        return set()
    own = os.sched_getaffinity(pid)
    bound: set[int] = set()
    for child in _below(pid, but):
        for thread in _threads(child):
            with contextlib.suppress(OSError):
                cores = os.sched_getaffinity(thread)
                bound |= cores if cores < own else set()
    return own - bound if bound else set()


def stay_on(pid: int, cores: set[int]) -> None:
    """Bind all threads of ``pid``, and those they will start, to ``cores``; no error if it is gone."""
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)


def _below(pid: int, but: int | None) -> Iterator[int]:
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            children = (PROC / str(pid) / "task" / str(thread) / "children").read_text()
            for child in map(int, children.split()):
                if child != but:
                    yield child
                    yield from _below(child, None)


def _threads(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []
