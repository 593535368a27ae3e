"""Where and with what a load ran."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine() -> str:
    """Cores that this process may use, the CPU's own name where the kernel tells it, the system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {_cpu()}, {platform.system()} {platform.machine()}"


def versions(packages: Iterable[str] = ("stagelens", "httptools", "uvloop")) -> dict[str, str]:
    """Of Python and of ``packages`` that are there."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "CPU unknown"
