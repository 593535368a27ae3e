"""An MCP server of the protocol with sessions, which can forget them, hang and be counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOOLS = [
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "facts", "inputSchema": {"type": "object"}},
    {"name": "odd", "inputSchema": {"type": "object"}},
]
SAYS: dict[str, Any] = {
    "facts": {"content": [], "structuredContent": {"stock": 3}},
    "odd": {"content": "no list"},
    "echo": {"content": [
        {"type": "text", "text": "hei"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
    ]},
}  # fmt: skip


@dataclass
class OldMcp:
    """``sessions`` are those that it knows; ``gate`` holds back what it is
    asked by the methods in ``held``; ``refusal``
    is the status and text with which it refuses a session that it does not know, and each call of
    the tool ``refused``; ``tools`` are those that it lists.
    """

    url: str = ""
    sessions: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    held: str = ""
    refusal: tuple[int, str] = (404, "")
    refused: str = ""
    tools: list[Any] = field(default_factory=lambda: list(TOOLS))

    async def post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        method = body["method"]
        self.asked[method] += 1
        if method in self.held.split():
            self.waiting.set()
            await self.gate.wait()
        if method == "server/discover":
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})
        if method == "initialize":
            name = f"s{self.asked[method]}"
            self.sessions.add(name)
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }  # fmt: skip
            told = {"jsonrpc": "2.0", "id": body["id"], "result": result}
            return web.json_response(told, headers={"mcp-session-id": name})
        if request.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        if "id" not in body:
            return web.Response(status=202)
        if method == "tools/call" and body["params"]["name"] == self.refused:
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        result = {"tools": self.tools} if method == "tools/list" else SAYS[body["params"]["name"]]
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

    async def other(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.method == "DELETE" else 405)


@asynccontextmanager
async def old_mcp() -> AsyncIterator[OldMcp]:
    """The server, on a free port of loopback."""
    server = OldMcp()
    app = web.Application()
    app.router.add_post("/mcp", server.post)
    app.router.add_route("*", "/mcp", server.other)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
