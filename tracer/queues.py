"""A bounded queue whose losses are counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tracer.counts import Tallies

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A FIFO of at most ``limit`` items; the newest is dropped and counted when it is full."""

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._weigh = weigh
        self.tallies = Tallies()

    def put(self, item: T) -> None:
        weight = self._weigh(item)
        self.tallies.receive(weight)
        if len(self._items) >= self._limit:
            self.tallies.drop(weight, "queue_full")
            return
        self._items.append(item)

    def take(self, most: int) -> list[T]:
        batch: list[T] = []
        while self._items and len(batch) < most:
            try:
                batch.append(self._items.popleft())
            except IndexError:  # another thread was quicker
                break
        return batch

    def give_up(self, reason: str) -> None:
        for item in self.take(len(self._items)):
            self.tallies.drop(self._weigh(item), reason)

    def __len__(self) -> int:
        return len(self._items)
