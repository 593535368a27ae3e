"""Work that nobody waits for, done when those who wait have been served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

DELAY_S = 0.002
"""A client that ends one request often begins its next at once: that one goes first."""
HELD = 64
"""More than this many pieces of work are not put off."""


class Afterwards:
    """Does what is added a moment later, in order, one piece a turn of the event loop.

    ``finish`` does the rest at once; call it when the loop's work is over. Work must not
    raise. Used from the event loop only.
    """

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        self._left: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        self._left.append(work)
        if len(self._left) == 1:
            asyncio.get_running_loop().call_later(self._delay_s, self._turn)

    def finish(self) -> None:
        while self._left:
            self._left.popleft()()

    def _turn(self) -> None:
        while len(self._left) > HELD:
            self._left.popleft()()
        if self._left:
            self._left.popleft()()
        if self._left:
            asyncio.get_running_loop().call_soon(self._turn)
