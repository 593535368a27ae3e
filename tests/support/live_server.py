"""A traced application on a real socket, and the records it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from proxy.middleware import App, TraceMiddleware
from proxy.recorder import EngineLoad, Recorder
from proxy.server import bind, serve, url_of
from proxy.settings import ProxySettings
from tracer.clock import SystemClock
from tracer.export_settings import SpanGroup
from tracer.ids import RandomIds
from tracer.spans import to_readable

NOBODY = InstrumentationScope("test")


@dataclass
class MemorySink:
    """Keeps each finished request's spans, root first."""

    requests: list[list[ReadableSpan]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put_spans(self, group: SpanGroup) -> None:
        spans = [to_readable(d, group.trace_id, Resource({}), NOBODY) for d in group.make()]
        assert len(spans) == group.count
        self.requests.append(spans)
        self.arrived.set()

    async def wait_for(self, count: int, within_s: float = 10) -> list[dict[str, object]]:
        """Root attributes of the finished requests, once there are ``count`` of them."""
        async with asyncio.timeout(within_s):
            while len(self.requests) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return [dict(spans[0].attributes or {}) for spans in self.requests]


@dataclass
class LiveServer:
    url: str
    port: int
    sink: MemorySink
    recorder: Recorder
    stop: asyncio.Event
    done: asyncio.Task[bool]


@asynccontextmanager
async def live_server(
    app: App,
    load: Callable[[], EngineLoad] = EngineLoad,
    engine_died: Callable[[], bool] = lambda: False,
    **settings: object,
) -> AsyncIterator[LiveServer]:
    """Serve ``app`` behind the tracing middleware on a free port of loopback."""
    made = ProxySettings(port=0, **{"shutdown_timeout_s": 1.0, **settings})  # type: ignore[arg-type]
    clock, sink = SystemClock(), MemorySink()
    recorder = Recorder(made, clock, RandomIds(), sink, "engine", load)
    sock = bind(made.host, 0)
    ready, stop = asyncio.Event(), asyncio.Event()

    async def on_ready() -> None:
        ready.set()

    traced = TraceMiddleware(app, made, recorder, clock)
    task = asyncio.create_task(
        serve(traced, sock, made, recorder, on_ready=on_ready, stop=stop, engine_died=engine_died)
    )
    try:
        await asyncio.wait_for(ready.wait(), 10)
        yield LiveServer(url_of(sock), sock.getsockname()[1], sink, recorder, stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, 15)
        sock.close()
