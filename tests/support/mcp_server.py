"""A real MCP server for tests: ``python -m tests.support.mcp_server`` speaks stdio, ``PORT`` HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from tests.support import timed

server = MCPServer("tests")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def trace(ctx: Context) -> str:
    """The trace context that came with the call."""
    meta = ctx.request_context.meta
    return json.dumps(dict(meta or {}), default=str)


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def rest() -> str:
    """Wait for a fifth of a second."""
    await timed.script(0.2)
    return "rested"


@server.tool()
async def pid() -> str:
    """The server's process."""
    return str(os.getpid())


@server.tool()
async def secret() -> str:
    """What the environment says."""
    return os.environ.get("TOKEN", "none") + "/" + os.environ.get("OTHER", "none")


@server.tool()
async def much() -> str:
    """10 MB."""
    return "x" * 10_000_000


@server.tool()
async def die() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


def _note(file: str, number: int) -> None:
    Path(file).write_text(str(number))


@server.tool()
async def leave_child(file: str, end: bool) -> str:
    """Start a process that keeps our output open, note its id in ``file``, and end or go on."""
    child = await asyncio.create_subprocess_exec("sleep", "600")
    _note(file, child.pid)
    if end:
        os._exit(3)
    return "left"


@server.tool()
async def fail() -> str:
    """Raise."""
    raise ValueError("no such thing")


if __name__ == "__main__":
    if len(sys.argv) > 1 and timed.FILE:
        timed.serve_web(server.streamable_http_app(), int(sys.argv[1]))
    elif len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        if timed.FILE:
            timed.watch_stdio()
        server.run("stdio")
