"""A Python function as tool."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from proxy.errors import ProxyError
from proxy.pipelines.callables import Callables, load
from proxy.pipelines.isolated import Isolated
from proxy.pipelines.runs import Trace
from proxy.pipelines.settings import PythonTool
from proxy.pipelines.tools.kit import ReadyTool, as_text, check_schema

ENCODED = 8
"""Times a result's size that its JSON may have: a character may be escaped."""


class FunctionTool:
    """One function, called with the arguments by name."""

    def __init__(self, settings: PythonTool, callables: Callables) -> None:
        self._settings = settings
        self._callables = callables
        self._function = load(settings.function)
        longest = settings.max_result_bytes * ENCODED + 1024
        self._isolated = Isolated(settings.function, longest) if settings.isolated else None

    async def start(self) -> list[ReadyTool]:
        given = self._settings
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self._function)  # type: ignore[arg-type]
            schema = adapter.json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError, NameError) as problem:
            raise ProxyError(
                f"tool {given.name}: the annotations of {given.function} make no JSON Schema "
                f"({type(problem).__name__}): annotate its parameters with plain types"
            ) from None
        about = given.description or inspect.getdoc(self._function) or ""
        return [
            check_schema(
                ReadyTool(
                    given.name, about, schema, given.timeout_s, given.max_result_bytes, self._call
                )
            )
        ]

    async def close(self) -> None:
        if self._isolated is not None:
            await self._isolated.close()

    async def _call(self, arguments: dict[str, Any], trace: Trace) -> str:  # noqa: ARG002
        if self._isolated is not None:
            return as_text(await self._isolated.call(**arguments))
        return as_text(await self._callables.call(self._function, **arguments))
