"""Functions that tests' pipelines name by import path."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from pathlib import Path

from tests.support import timed

HELD = threading.Event()
LET_GO = threading.Event()


def find(query: str, top_k: int) -> list[dict[str, str]]:
    return [{"id": str(i), "text": f"{query} {i}"} for i in range(top_k)]


async def find_slowly(query: str, top_k: int) -> list[str]:
    await timed.script(0.2)
    timed.note_later("retrieval")
    return [query] * top_k


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


async def pause() -> str:
    await timed.script(0.2)
    timed.note_later("python")
    return "paused"


async def hang() -> str:
    await asyncio.Event().wait()
    return ""


def hang_in_thread() -> str:
    threading.Event().wait(30)
    return ""


def hold() -> str:
    return "released" if HELD.wait(15) else "late"


async def stay() -> str:
    """No cancel ends it."""
    while not LET_GO.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.02)
    return "gone"


async def stay_in_a_thread() -> str:
    """Its cancel ends it, and not the thread that it waited for."""
    return await asyncio.to_thread(lambda: str(LET_GO.wait()))


async def stay_finding(query: str, top_k: int) -> list[str]:
    """The same of a retriever."""
    return [await stay()][: top_k * len(query)]


async def swallow() -> str:
    """Takes its cancel for an end like any other."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "late"


def start_child(file: str) -> str:
    """A process of its own, whose id goes into ``file``, and a wait for its end."""
    with subprocess.Popen(["sleep", "600"]) as child:
        Path(file).write_text(str(child.pid))
    return "ended"


def fail() -> str:
    raise ValueError("the secret is 1234")


def much() -> str:
    return "x" * 10_000_000


def nothing(query: str, top_k: int) -> int:
    return 7


def pid() -> int:
    return os.getpid()


def hang_for_ever() -> str:
    while True:
        threading.Event().wait()


def exit_at_once() -> str:
    os._exit(3)


def talk(text: str) -> dict[str, object]:
    os.write(1, b"this is no answer\n")
    return {"said": text, "pid": os.getpid()}
