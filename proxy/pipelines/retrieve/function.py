"""A Python function as retriever."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice
from typing import Any

from proxy.pipelines.callables import Callables, load
from proxy.pipelines.documents import Document, documents_of
from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonRetriever
from tracer import semconv
from tracer.clock import Clock


class FunctionRetriever:
    """Asks ``function(query, top_k)``."""

    def __init__(self, settings: PythonRetriever, callables: Callables, clock: Clock) -> None:
        self.name, self.top_k = settings.name, settings.top_k
        self.timeout_s, self.skips = settings.timeout_s, settings.on_error == "skip"
        self._function = load(settings.function)
        self._most = settings.max_bytes
        self._callables = callables
        self._clock = clock

    async def find(self, query: str, trace: Trace) -> list[Document]:
        function = self._function if inspect.iscoroutinefunction(self._function) else self._whole
        with trace.timed(semconv.SEARCH_NS, self._clock):
            found = await self._callables.call(function, query, self.top_k)
            if isinstance(found, Iterator):  # a coroutine's: its work is done in a thread too
                found = await self._callables.call(_taken, found, self.top_k)
        made = documents_of(found, trace, self.top_k)
        if sum(len(one.text.encode()) for one in made) > self._most:
            raise StageProblem("result_too_large", f"the texts are longer than {self._most} bytes")
        return made

    def _whole(self, query: str, top_k: int) -> Any:  # noqa: ANN401
        """Run in the function's thread: an iterator does its work there, and not in the loop."""
        found = self._function(query, top_k)
        return _taken(found, top_k) if isinstance(found, Iterator) else found


def _taken(found: Iterator[Any], most: int) -> list[Any]:
    return list(islice(found, most))
