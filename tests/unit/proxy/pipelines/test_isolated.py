"""Functions in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from proxy.pipelines.isolated import MOST_PROCESSES, Isolated
from proxy.pipelines.problems import StageProblem

HERE = "tests.support.pipeline_functions:"


async def test_a_process_is_used_again_and_ends_with_close():
    """Two calls have one process, and what the function prints is no answer."""
    one = Isolated(HERE + "talk", 10_000)
    first = await one.call(text="ä\n")
    second = await one.call(text="b")
    assert (first["said"], second["pid"]) == ("ä\n", first["pid"])
    await one.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first["pid"], 0)


async def test_a_coroutine_runs_there_too():
    """Its result comes back."""
    one = Isolated(HERE + "add", 10_000)
    assert await one.call(a=2, b=3) == 5
    await one.close()


async def test_a_process_that_was_ended_while_it_waited_is_replaced():
    """The call that would have got it gets another one."""
    one = Isolated(HERE + "pid", 10_000)
    first = await one.call()
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(10):
        while one._idle[0].returncode is None:  # noqa: ASYNC110  it has no other sign
            await asyncio.sleep(0.01)
    assert await one.call() != first
    await one.close()


async def test_more_calls_than_processes_are_refused():
    """Beyond the limit a call fails at once, and a cancelled call frees its place."""
    one = Isolated(HERE + "hang_for_ever", 10_000)
    calls = [asyncio.create_task(one.call()) for _ in range(MOST_PROCESSES)]
    await asyncio.sleep(0)
    with pytest.raises(StageProblem) as busy:
        await one.call()
    assert busy.value.kind == "busy"
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    late = asyncio.create_task(one.call())
    await asyncio.sleep(0)
    assert not late.done()
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
