"""Tools whose server was down at the start: tried again until they are there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager

from proxy.errors import ProxyError
from proxy.pipelines.tools.kit import ReadyTool, ToolSource

log = logging.getLogger("stagelens.proxy")
FIRST_S = 1.0
LONGEST_S = 30.0


@asynccontextmanager
async def started_later(
    source: ToolSource, tools: MutableMapping[str, ReadyTool], first_s: float = FIRST_S
) -> AsyncIterator[None]:
    """Meanwhile ``source`` is tried with growing pauses; its tools go into ``tools`` once it works."""
    trying = asyncio.create_task(_try(source, tools, first_s))
    try:
        yield
    finally:
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)


async def _try(source: ToolSource, tools: MutableMapping[str, ReadyTool], pause_s: float) -> None:
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_S)
        try:
            found = await source.start()
        except ProxyError:
            continue
        except Exception:
            log.exception("a tool server cannot be read, and is tried again")
            continue
        tools.update((tool.name, tool) for tool in found)
        log.warning("the tools %s are there now", ", ".join(tool.name for tool in found))
        return
