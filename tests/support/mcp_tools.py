"""The tools of an MCP server, as a pipeline has them, for as long as a test needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.pipelines.settings import McpTools
from proxy.pipelines.tools.kit import ReadyTool
from proxy.pipelines.tools.mcp import McpSource


@asynccontextmanager
async def tools_of(**settings: object) -> AsyncIterator[dict[str, ReadyTool]]:
    """By name; ``settings`` are those of :class:`McpTools`. The server is let go at the end."""
    source = McpSource(McpTools.model_validate(settings))
    try:
        yield {tool.name: tool for tool in await source.start()}
    finally:
        await source.close()
