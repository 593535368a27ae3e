"""The engine's processes end with the proxy, however that ends.

vLLM's engine core and its workers are processes of their own; a proxy that is killed
with SIGKILL cannot stop them, and they would keep the memory and the cores. vLLM loads
the entry points of ``vllm.general_plugins`` in each of its processes, and Linux signals
a process that asks for it when its parent is gone: core after proxy, worker after core.
The signal is SIGKILL: vLLM's own end by SIGTERM was seen to wait for ever, and there is
nobody left to whom the core could still answer.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time

OWNER = "STAGELENS_ENGINE_OWNER"
"""Environment variable with the proxy's process id; set for the engine's processes only."""
PR_SET_PDEATHSIG = 1


def own_engine() -> None:
    """Mark the engine processes that this process will start as its own."""
    os.environ[OWNER] = str(os.getpid())


def end_children(grace_s: float = 5.0) -> None:
    """Stop what the engine left running: the interpreter's own exit would wait for it for ever.

    An engine that is interrupted while it starts may leave its core behind. Processes
    get ``grace_s`` seconds after SIGTERM, all together, and are then killed.
    """
    left = multiprocessing.active_children()
    for process in left:
        process.terminate()
    give_up = time.monotonic() + grace_s
    for process in left:
        process.join(max(0.0, give_up - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join(1.0)


def end_with_parent() -> None:
    """Plugin of vLLM: does nothing outside the engine processes of a Stagelens proxy."""
    owner = os.environ.get(OWNER, "")
    if not owner or owner == str(os.getpid()) or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:  # the parent went before the wish was told
        os.kill(os.getpid(), signal.SIGKILL)
