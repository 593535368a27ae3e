"""An MCP server with one tool: how many of an article are in stock."""

from __future__ import annotations

import asyncio
from typing import Literal

from mcp.server import MCPServer

server = MCPServer("stock")
STOCK = {"lamp": 12, "kettle": 0, "chair": 4}
Article = Literal["lamp", "kettle", "chair"]


@server.tool()
async def stock(article: Article) -> str:
    """How many of an article are in stock."""
    await asyncio.sleep(0.05)  # as a warehouse's database would take
    return f"{STOCK[article]} in stock"


if __name__ == "__main__":
    server.run("stdio")
