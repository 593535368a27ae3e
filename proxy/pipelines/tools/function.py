"""A Python function as tool."""

from __future__ import annotations

import inspect
from typing import Any

from proxy.errors import ProxyError
from proxy.pipelines.bound import Bound
from proxy.pipelines.callables import Callables, load
from proxy.pipelines.isolated import Isolated
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonTool
from proxy.pipelines.text import as_text
from proxy.pipelines.tools.kit import ReadyTool, check_schema

ENCODED = 8
"""Times a result's size that its JSON may have: a character may be escaped."""


class FunctionTool:
    """One function, called with the arguments by name."""

    def __init__(self, settings: PythonTool, callables: Callables) -> None:
        self._settings = settings
        self._callables = callables
        self._function = load(settings.function)
        self._bound: Bound | None = None
        longest = settings.max_result_bytes * ENCODED + 1024
        self._isolated = Isolated(settings.function, longest) if settings.isolated else None

    async def start(self) -> list[ReadyTool]:
        given = self._settings
        if inspect.isasyncgenfunction(self._function):
            raise ProxyError(f"tool {given.name}: {given.function} yields: return one result")
        try:
            self._bound = Bound(self._function)
        except ProxyError as problem:
            raise ProxyError(f"tool {given.name}: {given.function}: {problem}") from None
        about = given.description or inspect.getdoc(self._function) or ""
        ready = ReadyTool(
            given.name, about, self._bound.schema, given.timeout_s, given.max_result_bytes, self._call
        )
        return [check_schema(ready)]

    async def close(self) -> None:
        if self._isolated is not None:
            await self._isolated.close()

    async def _call(self, arguments: dict[str, Any], trace: Trace) -> str:  # noqa: ARG002
        assert self._bound is not None, "start comes first"
        made = self._bound.given(arguments)
        if self._isolated is not None:
            return as_text(await self._isolated.call(**arguments))
        if inspect.iscoroutinefunction(self._function):
            found = await self._callables.call(self._function, **made)
        else:
            found = await self._callables.call(self._told, **made)
        if found is None or isinstance(found, str | int | float):
            return as_text(found)
        # what is large, or made as it is told, takes long, and the event loop must go on
        return str(await self._callables.call(as_text, found))

    def _told(self, **arguments: Any) -> Any:  # noqa: ANN401
        """Run in the function's thread, which tells the result too."""
        found = self._function(**arguments)
        return found if inspect.isawaitable(found) else as_text(found)
