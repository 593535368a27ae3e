"""How long other programs and threads may keep the event loop from a core that they have.

Linux lets who runs finish its slice (1.4 ms on two cores, 2.8 ms on eight and more) before one that
has just been woken gets the core, unless the woken one's own slice is shorter (since 6.12,
``sched_setattr(2)``). An event loop works for microseconds at a time, and while it waits all its
clients do.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

SLICE_NS = 100_000
"""The shortest that Linux gives."""
_RESET_ON_FORK = 1
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTR = struct.Struct("=IIQiIQQQ")
"""size, policy, flags, nice, priority, runtime, deadline, period."""


def shorten_slice() -> bool:
    """Give the calling thread the shortest slices; whether the system took it.

    Threads and processes that it starts have the system's own. Needs no rights; changes nothing
    where the system does not know of it, and where the thread has another policy than the usual.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return False
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attr = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0)
    try:
        return bool(ctypes.CDLL(None).syscall(number, 0, attr, 0) == 0)
    except (OSError, AttributeError):
        return False
