"""Signals at each moment of a server's life."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from proxy.server import run_loop
from proxy.stopping import SIGNALS, Stopping, held_back


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Those of the test runner are back afterwards."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stopping() -> Stopping:
    made = Stopping()
    made.install()
    return made


@pytest.mark.parametrize("number", SIGNALS)
def test_a_start_that_waits_is_cancelled_and_cleans_up_in_order(
    stopping: Stopping, number: signal.Signals
):
    """A second signal does not break into that."""
    done = []

    async def start() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, number)
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(number)
            await asyncio.sleep(0)
            done.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        run_loop(start(), stopping)
    assert done == ["cleaned"]


def test_a_start_that_computes_is_interrupted_where_it_is(stopping: Stopping):
    """A library that swallows that is asked again before anything is served."""

    async def start() -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            stopping.serves()

    run_loop(start(), stopping)


def test_a_server_that_serves_is_asked_to_stop(stopping: Stopping):
    """Its task is neither cancelled nor interrupted, however often."""

    async def serve() -> str:
        stopping.serves()
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(stopping.stop.wait(), 5)
        return "ended"

    assert run_loop(serve(), stopping) == "ended"
    signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_held_back_is_heard_at_the_end(stopping: Stopping):
    """What was started meanwhile is known by then."""
    started = None
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the moment is the point
        with held_back():
            signal.raise_signal(signal.SIGINT)
            started = "known"
    assert started == "known"
    assert stopping.told
