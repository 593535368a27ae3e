"""What a user's type checker must know of decorated functions. Checked, and never run.

Each ``type: ignore`` stands where a mistake must be found: one that is not needed is an
error as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, assert_type

import tracer
from tracer.asgi import StagelensMiddleware


@tracer.trace
def bare(question: str, k: int = 5) -> list[str]:
    return [question] * k


@tracer.tool("named")
def named(city: str) -> float:
    return len(city) / 2


@tracer.retrieval(data_source="docs", top_k=3)
async def search(query: str, *, k: int = 5) -> list[dict[str, str]]:
    return [{"id": query}] * k


@tracer.llm("m")
def stream(prompt: str) -> Iterator[str]:
    yield prompt


@tracer.agent
async def astream(prompt: str) -> AsyncIterator[str]:
    yield prompt


class Shop:
    @tracer.tool
    def price(self, article: str) -> int:
        return len(article)

    @classmethod
    @tracer.embedding
    def embed(cls, text: str) -> list[float]:
        return [float(len(text))]

    @staticmethod
    @tracer.rerank("r")
    def rerank(texts: list[str]) -> list[str]:
        return texts


assert_type(bare("q", k=2), list[str])
assert_type(named("Rome"), float)
assert_type(stream("p"), Iterator[str])
assert_type(astream("p"), AsyncIterator[str])
assert_type(Shop().price("a"), int)
assert_type(Shop.embed("a"), list[float])
assert_type(Shop.rerank(["a"]), list[str])
assert_type(tracer.carry(named)("Rome"), float)
assert_type(tracer.ThreadPoolExecutor().submit(named, "Rome").result(), float)
assert_type(tracer.ProcessPoolExecutor().submit(named, "Rome").result(), float)
assert_type(tracer.current_trace_id(), str | None)
assert_type(tracer.outcome("1" * 32, success=True, score=1), bool)
assert_type(tracer.propagating(Shop()), Shop)

bare(1)  # type: ignore[arg-type]
bare()  # type: ignore[call-arg]
named(town="Rome")  # type: ignore[call-arg]
Shop().price()  # type: ignore[call-arg]
tracer.ThreadPoolExecutor().submit(named, 3)  # type: ignore[arg-type]
tracer.outcome("1" * 32)  # type: ignore[call-arg]
tracer.stage(5)  # type: ignore[arg-type]


async def use() -> None:
    assert_type(await search("q", k=1), list[dict[str, str]])
    assert_type([text async for text in astream("p")], list[str])
    async with tracer.stage("prompt"):
        pass
    with tracer.trace("task"), tracer.tool("named", call_id="c1"):
        pass


App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


def wrapped(app: App) -> App:
    return StagelensMiddleware(app, skip=["/health"])
