"""Plain functions that hang make their own tool or retriever busy, and no other."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from proxy.pipelines import callables
from proxy.pipelines.callables import MOST_THREADS, Callables
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonTool
from proxy.pipelines.tools.function import FunctionTool
from tests.fake_llm.dialects import asks_tools
from tests.support.pipelines import ANSWER, ask, bot, retriever, text_of

LET_GO = threading.Event()
ME = f"{__name__}:"


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """No thread outlives its test: one that ran on would slow all that come after."""
    LET_GO.clear()
    yield
    LET_GO.set()
    for thread in threading.enumerate():
        if thread.name == "stagelens-function":
            thread.join(10)
            assert not thread.is_alive()


def stuck() -> str:
    LET_GO.wait()
    return "late"


def plain() -> str:
    return f"in {threading.current_thread().name}"


async def counting() -> Iterator[str]:
    return (threading.current_thread().name for _ in range(1) if LET_GO.wait())


async def test_a_tool_whose_calls_all_hang_is_busy_and_another_works():
    """Its 33rd call fails at once; the other tool and a retriever have threads of their own."""
    tools = [
        {"kind": "python", "name": name, "function": ME + name, "timeout_s": limit}
        for name, limit in (("stuck", 0.2), ("plain", 20))
    ]
    pipeline = bot(tools=tools, retrievers=[retriever("r", "find")], max_parallel_tools=64)
    hangs = asks_tools(*(("stuck", "{}"),) * MOST_THREADS)
    answer, _, _, fake = await ask(
        [hangs, asks_tools(("stuck", "{}"), ("plain", "{}")), ANSWER], pipeline, stream=True
    )
    assert text_of(answer) == "up it is"
    said = [m["content"] for m in json.loads(fake.requests[2].body)["messages"][-2:]]
    assert json.loads(said[0])["error"]["type"] == "busy"
    assert said[1] == "in stagelens-function"


async def test_functions_together_have_a_bound_too(monkeypatch: pytest.MonkeyPatch):
    """What all of them may hold, whichever it is."""
    monkeypatch.setattr(callables, "MOST_OF_ALL", 2)
    shared = Callables()
    calls = [asyncio.create_task(shared.own().call(stuck)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StageProblem) as busy:
        await shared.own().call(plain)
    assert busy.value.kind == "busy"
    LET_GO.set()
    assert await asyncio.gather(*calls) == ["late", "late"]
    assert await shared.own().call(plain) == "in stagelens-function"


async def test_what_a_coroutine_gives_is_told_in_its_own_threads():
    """An iterator that hangs holds no thread that others need, such as those that resolve names."""
    settings = PythonTool(name="counting", function=ME + "counting")
    [tool] = await FunctionTool(settings, Callables()).start()
    call = asyncio.create_task(tool.call({}, Trace(1, 2, 1)))
    await asyncio.wait({call}, timeout=0.2)
    assert not call.done()
    assert "stagelens-function" in {thread.name for thread in threading.enumerate()}
    call.cancel()
