"""Pipelines from their settings: what they need is started before the first request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from proxy.errors import ProxyError
from proxy.middleware import App
from proxy.pipelines.app import Door, PipelineApp
from proxy.pipelines.callables import Callables
from proxy.pipelines.documents import Retrieves
from proxy.pipelines.embed.kit import Embedding, Embeds, embedder
from proxy.pipelines.loop import Pipeline
from proxy.pipelines.retrieve.documents import NO_COLLECTOR, CollectorApi, StoreRetriever
from proxy.pipelines.retrieve.function import FunctionRetriever
from proxy.pipelines.retrieve.http import SearchRetriever
from proxy.pipelines.retrieve.rerank import Reranked
from proxy.pipelines.retrieve.watched import Watched
from proxy.pipelines.settings import (
    HttpRetriever,
    McpTools,
    OpenApiTools,
    PipelineSettings,
    PythonRetriever,
    PythonTool,
    Retriever,
)
from proxy.pipelines.tools.function import FunctionTool
from proxy.pipelines.tools.kit import ReadyTool, ToolSource
from proxy.pipelines.tools.later import started_later
from proxy.pipelines.web import Web
from tracer.clock import Clock
from tracer.ids import IdSource

log = logging.getLogger("stagelens.proxy")
Wrap = Callable[[App], App]


@asynccontextmanager
async def with_pipelines(
    app: App,
    settings: Mapping[str, PipelineSettings],
    clock: Clock,
    ids: IdSource,
    door: Door | None = None,
    collector_api: CollectorApi = NO_COLLECTOR,
) -> AsyncIterator[App]:
    """``app`` with pipelines beside its models; ``app`` itself where there are none.

    ``collector_api`` is asked for documents where the settings name no other.

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
        with_ = _With(web, Callables(), clock, collector_api, stack)
        made = {name: await _pipeline(name, one, with_) for name, one in settings.items()}
        most = max(one.max_request_bytes for one in settings.values())
        yield PipelineApp(app, made, clock, ids, most, door)


@dataclass(frozen=True, slots=True)
class _With:
    """What pipelines share; ``stack`` closes what they start. One embedder a setting."""

    web: Web
    callables: Callables
    clock: Clock
    collector_api: CollectorApi
    stack: AsyncExitStack
    embedders: dict[str, Embeds] = field(default_factory=dict)


async def _pipeline(name: str, settings: PipelineSettings, with_: _With) -> Pipeline:
    retrievers = [
        Watched(await _retriever(name, one, with_), name, with_.clock) for one in settings.retrievers
    ]
    tools: dict[str, ReadyTool] = {}
    for one in settings.tools:
        source = _source(one, with_.callables)
        with_.stack.push_async_callback(source.close)
        try:
            tools.update((tool.name, tool) for tool in await source.start())
        except ProxyError as problem:
            if not (isinstance(one, McpTools) and one.at_start == "later"):
                raise
            log.warning("pipeline %s goes on without tools for now: %s", name, problem)
            await with_.stack.enter_async_context(started_later(source, tools))
    return Pipeline(name, settings, retrievers, tools)


async def _retriever(pipeline: str, settings: Retriever, with_: _With) -> Retrieves:
    if settings.rerank is None:
        return await _plain_retriever(pipeline, settings, with_)
    more = settings.model_copy(update={"top_k": settings.rerank.candidates})
    inner = await _plain_retriever(pipeline, more, with_)
    return Reranked(inner, settings.rerank, settings.top_k, with_.web, with_.clock)


async def _plain_retriever(pipeline: str, settings: Retriever, with_: _With) -> Retrieves:
    if isinstance(settings, HttpRetriever):
        return SearchRetriever(settings, with_.web, with_.clock)
    if isinstance(settings, PythonRetriever):
        return FunctionRetriever(settings, with_.callables.own(), with_.clock)
    api = with_.collector_api
    if settings.collector_api:
        api = CollectorApi(settings.collector_api)
    if not api.url:
        raise ProxyError(
            f"pipeline {pipeline}: retriever {settings.name} asks a collector and none is started "
            "here: give collector_api, its API's address"
        )
    embeds = None if settings.search == "text" else await _embeds(settings.embedding, with_)
    return StoreRetriever(settings, api, embeds, with_.web, with_.clock)


async def _embeds(settings: Embedding, with_: _With) -> Embeds:
    key = settings.model_dump_json()
    if key not in with_.embedders:
        made = embedder(settings, with_.web)
        with_.stack.push_async_callback(made.close)
        await made.start()
        with_.embedders[key] = made
    return with_.embedders[key]


def _source(settings: PythonTool | McpTools | OpenApiTools, callables: Callables) -> ToolSource:
    if isinstance(settings, PythonTool):
        return FunctionTool(settings, callables.own())
    if isinstance(settings, McpTools):
        from proxy.pipelines.tools.mcp import McpSource

        return McpSource(settings)
    from proxy.pipelines.tools.openapi import OpenApiSource

    return OpenApiSource(settings)
