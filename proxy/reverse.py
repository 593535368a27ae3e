"""The proxy in front of upstream servers, put together and run."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from proxy.afterwards import Afterwards
from proxy.asgi import App
from proxy.middleware import TraceMiddleware
from proxy.pipelines.build import with_pipelines
from proxy.pipelines.retrieve.documents import NO_COLLECTOR, CollectorApi
from proxy.pipelines.settings import PipelineSettings
from proxy.recorder import Recorder, SpanSink
from proxy.server import serve
from proxy.settings import AccessSettings, ProxySettings, UpstreamSettings
from proxy.untraced import Untraced
from proxy.upstream.access import Access
from proxy.upstream.app import UpstreamApp
from proxy.upstream.pool import Pool
from tracer.clock import Clock
from tracer.ids import IdSource

log = logging.getLogger("stagelens.proxy")
LOOPBACK = ("127.", "::1")


async def run_reverse(
    settings: ProxySettings,
    upstream: UpstreamSettings,
    access: AccessSettings,
    sock: socket.socket,
    sink: SpanSink,
    clock: Clock,
    ids: IdSource,
    on_ready: Callable[[str], Awaitable[None]],
    tls: Mapping[str, Any] | None = None,
    traced: bool = True,
    stop: asyncio.Event | None = None,
    pipelines: Mapping[str, PipelineSettings] = MappingProxyType({}),
    collector_api: CollectorApi = NO_COLLECTOR,
) -> bool:
    """Serve until told to stop; ``on_ready`` gets the upstreams' names. Always ``True``.

    ``traced=False`` forwards without a record (pipelines always make one). ``tls`` are
    uvicorn's ``ssl_*`` options.

    Raises:
        ProxyError: a key cannot be read, or a pipeline's tool or function is not there.
    """
    door = Access(access, clock)
    pool = Pool(upstream, clock)
    app = UpstreamApp(upstream, pool, door, clock, ids)
    after = Afterwards()
    recorder = Recorder(settings, clock, ids, sink, "upstream", later=after.add)
    host = sock.getsockname()[0]
    if not door.guarded and not host.startswith(LOOPBACK):
        log.warning("%s is reachable from other machines and no client key is set: anybody who "
                    "reaches it can use the upstreams", host)  # fmt: skip

    async def ready() -> None:
        await on_ready(", ".join(u.label for u in pool.upstreams))

    async with with_pipelines(
        app, pipelines, clock, ids, door.enter, collector_api
    ) as inner:
        outer: App = Untraced(inner, settings.request_timeout_s, abandon_after_s=0)
        if traced or pipelines:
            outer = TraceMiddleware(
                inner, settings, recorder, clock, abandon_after_s=0, passes_on=True
            )
        try:
            return await serve(
                outer, sock, settings, recorder, on_ready=ready, own_headers=False, tls=tls,
                stop=stop,
            )  # fmt: skip
        finally:
            after.finish()
