"""What this process holds: tasks, child processes, sockets; and that it holds no more later."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Held:
    """Tasks by the name of their coroutine, children by their process id, and a count of sockets."""

    tasks: Counter[str]
    children: frozenset[int]
    sockets: int

    def more_than(self, before: Held) -> list[str]:
        """What is here and was not there before."""
        found = [f"task {name}" for name in (self.tasks - before.tasks)]
        if len(self.children) > len(before.children):  # a new one may have taken another's place
            found.append(f"one of the processes {sorted(self.children - before.children)}")
        if self.sockets > before.sockets:
            found.append(f"{self.sockets - before.sockets} sockets")
        return found


def children_of(pid: int | str) -> set[int]:
    """The processes that ``pid`` started and that are still there."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children.update(int(child) for child in file.read_text().split())
        except OSError:  # a thread that ended meanwhile
            continue
    return children


def held() -> Held:
    """As of now."""
    tasks = Counter(t.get_coro().__qualname__ for t in asyncio.all_tasks() if not t.done())
    children = children_of("self")
    sockets = 0
    for file in Path("/proc/self/fd").iterdir():
        try:
            sockets += str(file.readlink()).startswith("socket:")
        except OSError:
            continue
    return Held(tasks, frozenset(children), sockets)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def ended(pid: int, within_s: float = 10.0) -> None:
    """Returns once process ``pid`` has ended, reaped or not; AssertionError where it lives on."""
    ends = asyncio.get_running_loop().time() + within_s
    while _lives(pid):
        assert asyncio.get_running_loop().time() < ends, f"process {pid} lives"
        await asyncio.sleep(0.02)


async def nothing_more_than(before: Held, within_s: float = 10.0) -> None:
    """Returns once nothing is held that was not before; AssertionError with its names else."""
    ends = asyncio.get_running_loop().time() + within_s
    while more := held().more_than(before):
        assert asyncio.get_running_loop().time() < ends, more
        await asyncio.sleep(0.02)
