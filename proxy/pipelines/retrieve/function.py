"""A Python function as retriever."""

from __future__ import annotations

from proxy.pipelines.callables import Callables, load
from proxy.pipelines.documents import Document, documents_of
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonRetriever


class FunctionRetriever:
    """Asks ``function(query, top_k)``."""

    def __init__(self, settings: PythonRetriever, callables: Callables) -> None:
        self.name, self.top_k = settings.name, settings.top_k
        self.timeout_s, self.skips = settings.timeout_s, settings.on_error == "skip"
        self._function = load(settings.function)
        self._callables = callables

    async def find(self, query: str, trace: Trace) -> list[Document]:  # noqa: ARG002
        found = await self._callables.call(self._function, query, self.top_k)
        return documents_of(found, self.top_k)
