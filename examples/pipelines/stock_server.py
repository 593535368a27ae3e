"""An MCP server with one tool: how many of an article are in stock."""

from __future__ import annotations

import asyncio

from mcp.server import MCPServer

server = MCPServer("stock")
STOCK = {"lamp": 12, "kettle": 0, "chair": 4}


@server.tool()
async def stock(article: str) -> str:
    """How many of an article (lamp, kettle, chair) are in stock."""
    await asyncio.sleep(0.05)  # as a warehouse's database would take
    found = next((name for name in STOCK if name in article.lower()), None)
    return "there is no such article" if found is None else f"{STOCK[found]} in stock"


if __name__ == "__main__":
    server.run("stdio")
