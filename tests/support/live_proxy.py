"""The reverse proxy on a real socket in front of fake upstreams, and the records it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from proxy.pipelines.settings import PipelineSettings
from proxy.reverse import run_reverse
from proxy.server import bind, url_of
from proxy.settings import AccessSettings, ProxySettings, UpstreamSettings, UpstreamTarget
from tests.support.live_server import MemorySink
from tracer.clock import Clock, SystemClock
from tracer.ids import RandomIds


@dataclass
class LiveProxy:
    url: str
    port: int
    sink: MemorySink


@asynccontextmanager
async def live_proxy(
    *targets: str | UpstreamTarget,
    access: AccessSettings | None = None,
    proxy: dict[str, object] | None = None,
    clock: Clock | None = None,
    pipelines: dict[str, dict[str, object]] | None = None,
    **upstream: object,
) -> AsyncIterator[LiveProxy]:
    """Serve in front of ``targets`` on a free port of loopback."""
    given = tuple(UpstreamTarget(url=t) if isinstance(t, str) else t for t in targets)
    forwarding = UpstreamSettings(targets=given, **upstream)  # type: ignore[arg-type]
    settings = ProxySettings(port=0, **{"shutdown_timeout_s": 1.0, **(proxy or {})})  # type: ignore[arg-type]
    sock, sink = bind("127.0.0.1", 0), MemorySink()
    ready = asyncio.Event()

    async def on_ready(_names: str) -> None:
        ready.set()

    stopped = asyncio.Event()
    task = asyncio.create_task(
        run_reverse(
            settings, forwarding, access or AccessSettings(), sock, sink,
            clock or SystemClock(), RandomIds(), on_ready, stop=stopped,
            pipelines={
                name: PipelineSettings.model_validate(one) for name, one in (pipelines or {}).items()
            },
        )
    )  # fmt: skip
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield LiveProxy(url_of(sock), sock.getsockname()[1], sink)
    finally:
        stopped.set()
        waiting.cancel()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 15)
        sock.close()
