"""Waiting for an instant more exactly than an event loop's timers, which count milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from types import TracebackType
from typing import Self

from tracer.clock import Clock

_MONOTONIC, _ABSTIME = 1, 1
_FLAGS = 0o2000000 | 0o4000  # close on exec, do not block


class _Spec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Pacer:
    """Wakes its one waiter at instants of the monotonic clock: by a timerfd, else by the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fd = -1
        self._waiting: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                self._libc = ctypes.CDLL(None, use_errno=True)
                self._fd = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._due)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)

    async def until(self, mono_ns: int) -> None:
        """Return at ``mono_ns``; when that is past, after the loop has had its turn."""
        left = mono_ns - self._clock.mono_ns()
        if left <= 0:
            await asyncio.sleep(0)
            return
        if self._fd < 0:
            await asyncio.sleep(left / 1e9)
            return
        self._waiting = asyncio.get_running_loop().create_future()
        spec = _Spec(0, 0, *divmod(mono_ns, 1_000_000_000))
        self._libc.timerfd_settime(self._fd, _ABSTIME, ctypes.byref(spec), None)
        await self._waiting

    def _due(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
