"""The end of the event loop, with tasks that do not end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from proxy import left_behind
from proxy.server import run_loop


async def swallows(until: list[str]) -> None:
    while not until:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(0.01)


def test_a_task_that_catches_its_cancel_does_not_keep_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It is named in one line; those that end in order do, and what the main task gives is given."""
    monkeypatch.setattr(left_behind, "END_S", 0.2)
    done: list[str] = []

    async def clean() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            done.append("cleaned")

    let_go: list[str] = []
    kept: list[asyncio.Task[None]] = []

    async def main() -> str:
        kept.append(asyncio.create_task(swallows(let_go), name="function mine:stays"))
        kept.append(asyncio.create_task(clean()))
        await asyncio.sleep(0)
        # without its bound the end would wait for this
        asyncio.get_running_loop().call_later(5, let_go.append, "too late")
        return "ended"

    assert run_loop(main()) == "ended"
    assert done == ["cleaned"]
    assert let_go == []
    assert [r.message for r in caplog.records] == [
        "left behind at the end, since no cancel ends it: function mine:stays"
    ]


def test_a_loop_whose_tasks_end_says_nothing(caplog: pytest.LogCaptureFixture):
    """Also where the main task fails."""

    async def main() -> None:
        asyncio.create_task(asyncio.Event().wait())  # noqa: RUF006  the loop ends it
        raise ValueError("main")

    with pytest.raises(ValueError, match="main"):
        run_loop(main())
    assert caplog.records == []
