"""Strangers' functions: whatever they raise or return ends their own call and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proxy.pipelines.callables import MOST_THREADS, Callables
from proxy.pipelines.documents import documents_of
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.retrieve.function import FunctionRetriever
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonRetriever
from tracer import semconv
from tracer.clock import SystemClock

TRACE = Trace(1, 2, 1)


def leave() -> None:
    sys.exit("bye")


async def leave_later() -> None:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


class Asynchronous:
    """No coroutine function to ``inspect``, and yet one to its caller."""

    async def __call__(self, number: int) -> int:
        await asyncio.sleep(0)
        return number + 1


@pytest.mark.parametrize(("function", "kind"), [(leave, "SystemExit"), (leave_later, "KeyboardInterrupt")])
async def test_a_function_that_would_end_the_process_ends_its_call(
    function: Callable[[], Any], kind: str
):
    """Each time, and its thread's place is free again."""
    calls = Callables()
    for _ in range(MOST_THREADS + 1):
        with pytest.raises(StageProblem) as ended:
            await asyncio.wait_for(calls.call(function), 10)
        assert ended.value.kind == kind


async def test_a_coroutine_that_a_plain_callable_gives_is_awaited():
    """Its result is the call's."""
    assert await Callables().call(Asynchronous(), 1) == 2


def endless(query: str, top_k: int) -> Iterator[str]:
    return (f"{query} {number}" for number in itertools.count(top_k))


def long(query: str, top_k: int) -> list[str]:
    return [query * 100] * top_k


def odd(query: str, top_k: int) -> list[str]:
    return [query, "\ud83d"]


def asked(name: str, **more: object) -> FunctionRetriever:
    given = {"name": "r", "function": f"{__name__}:{name}", "top_k": 2, **more}
    return FunctionRetriever(PythonRetriever.model_validate(given), Callables(), SystemClock())


async def test_documents_without_an_end_are_read_as_far_as_they_are_wanted():
    """In the function's own thread."""
    found = await asyncio.wait_for(asked("endless").find("q", TRACE), 10)
    assert [one.text for one in found] == ["q 2", "q 3"]
    assert len(documents_of(itertools.repeat("x"), TRACE, 3)) == 3


async def test_texts_beyond_the_limit_are_refused():
    """A function's documents have the limit that an HTTP answer has."""
    with pytest.raises(StageProblem) as refused:
        await asked("long", max_bytes=1000).find("0123456789", TRACE)
    assert refused.value.kind == "result_too_large"


async def test_half_a_character_becomes_a_question_mark():
    """A text that UTF-8 cannot tell would fail the model's request."""
    assert [one.text for one in await asked("odd").find("q", TRACE)] == ["q", "?"]


def holey(query: str, top_k: int) -> Iterator[object]:
    return iter([{"id": "a"}, query])


def textless(query: str, top_k: int) -> list[object]:
    return [{"id": "a"}, {"text": "  "}, None, 5]


async def test_documents_without_a_text_are_left_out_and_counted():
    """The others stand; where none has a text, the search has failed."""
    trace = Trace(1, 2, 1)
    assert [one.text for one in await asked("holey").find("q", trace)] == ["q"]
    assert trace.notes[semconv.DOCUMENTS_WITHOUT_TEXT] == 1
    assert trace.notes[semconv.SEARCH_NS] > 0
    with pytest.raises(StageProblem, match="no document has a text") as refused:
        await asked("textless").find("q", trace)
    assert refused.value.kind == "bad_answer"
    assert trace.notes[semconv.DOCUMENTS_WITHOUT_TEXT] == 4
    assert trace.notes[semconv.SEARCH_NS] > 0


def test_documents_without_a_text_and_without_an_end_are_given_up():
    """A list need have no end."""
    with pytest.raises(StageProblem, match="no document has a text"):
        documents_of(itertools.repeat({}), TRACE, 3)
