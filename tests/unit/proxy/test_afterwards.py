"""Work that nobody waits for is done later, in order, all of it."""

from __future__ import annotations

import asyncio

from proxy.afterwards import HELD, Afterwards


async def test_work_is_done_a_moment_later_in_the_order_it_came():
    """Not by the one who adds it, and one piece after another."""
    done: list[int] = []
    all_done = asyncio.Event()
    after = Afterwards(delay_s=0)
    for n in range(3):
        after.add(lambda n=n: done.append(n))
    after.add(all_done.set)
    assert done == []
    await asyncio.wait_for(all_done.wait(), 10)
    assert done == [0, 1, 2]


async def test_what_is_left_at_the_end_is_done_at_once():
    """A record that was put off is not lost when the server stops."""
    done: list[int] = []
    after = Afterwards(delay_s=3600)
    for n in range(5):
        after.add(lambda n=n: done.append(n))
    after.finish()
    assert done == [0, 1, 2, 3, 4]


async def test_no_more_than_a_bound_of_work_waits():
    """Many that end at once are not put off one by one behind those that follow."""
    done: list[int] = []
    turn = asyncio.Event()
    after = Afterwards(delay_s=0)
    for n in range(HELD + 10):
        after.add(lambda n=n: (done.append(n), turn.set()))
    await asyncio.wait_for(turn.wait(), 10)
    assert len(done) >= 10
    after.finish()
    assert done == list(range(HELD + 10))
