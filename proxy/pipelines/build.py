"""Pipelines from their settings: what they need is started before the first request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from proxy.errors import ProxyError
from proxy.middleware import App
from proxy.pipelines.app import Door, PipelineApp
from proxy.pipelines.callables import Callables
from proxy.pipelines.documents import Retrieves
from proxy.pipelines.loop import Pipeline
from proxy.pipelines.retrieve.function import FunctionRetriever
from proxy.pipelines.retrieve.http import SearchRetriever
from proxy.pipelines.settings import (
    HttpRetriever,
    McpTools,
    OpenApiTools,
    PipelineSettings,
    PythonTool,
)
from proxy.pipelines.tools.function import FunctionTool
from proxy.pipelines.tools.kit import ReadyTool, ToolSource
from proxy.pipelines.web import Web
from tracer.clock import Clock
from tracer.ids import IdSource

Wrap = Callable[[App], App]


@asynccontextmanager
async def with_pipelines(
    app: App,
    settings: Mapping[str, PipelineSettings],
    clock: Clock,
    ids: IdSource,
    door: Door | None = None,
) -> AsyncIterator[App]:
    """``app`` with pipelines beside its models; ``app`` itself where there are none.

    Raises:
        ProxyError: a function, a tool server, a document or a secret is not there.
    """
    if not settings:
        yield app
        return
    async with AsyncExitStack() as stack:
        web = Web()
        await web.start()
        stack.push_async_callback(web.close)
        callables = Callables()
        made = {
            name: await _pipeline(name, one, web, callables, stack)
            for name, one in settings.items()
        }
        most = max(one.max_request_bytes for one in settings.values())
        yield PipelineApp(app, made, clock, ids, most, door)


async def _pipeline(
    name: str, settings: PipelineSettings, web: Web, callables: Callables, stack: AsyncExitStack
) -> Pipeline:
    retrievers: list[Retrieves] = [
        SearchRetriever(one, web)
        if isinstance(one, HttpRetriever)
        else FunctionRetriever(one, callables)
        for one in settings.retrievers
    ]
    tools: dict[str, ReadyTool] = {}
    for one in settings.tools:
        source = _source(one, callables)
        stack.push_async_callback(source.close)
        for tool in await source.start():
            if tool.name in tools:
                raise ProxyError(f"pipeline {name}: two tools are named {tool.name}: rename one")
            tools[tool.name] = tool
    return Pipeline(name, settings, retrievers, tools)


def _source(settings: PythonTool | McpTools | OpenApiTools, callables: Callables) -> ToolSource:
    if isinstance(settings, PythonTool):
        return FunctionTool(settings, callables)
    if isinstance(settings, McpTools):
        from proxy.pipelines.tools.mcp import McpSource

        return McpSource(settings)
    from proxy.pipelines.tools.openapi import OpenApiSource

    return OpenApiSource(settings)
