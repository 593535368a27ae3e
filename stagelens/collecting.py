"""`stagelens collect`: receiver, store and API in one process, which owns the data folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from collectors.app import Receiver, build_receiver
from collectors.settings import CollectorSettings
from collectors.store.client import Store, open_store
from collectors.store.keeping import apply_keeping
from collectors.store.migrate import migrate
from collectors.store.url import StoreUrl
from dashboards.api import build_api
from proxy.server import bind, url_of
from stagelens.paths import spool_folder
from stagelens.ready import write_ready
from tracer.clock import SystemClock

BESIDE_AN_ENGINE = 10
"""Niceness of a collector on the proxy's machine: writing telemetry waits for requests."""


async def run_collector(
    settings: CollectorSettings,
    store_url: StoreUrl,
    host: str,
    ports: tuple[int, int],
    ready_files: Sequence[Path],
    *,
    with_parent: bool,
) -> None:
    """Serve OTLP and the API until a signal comes or the parent is gone; then flush.

    ``ready_files`` hold its addresses while it runs.

    Raises:
        ProxyError, StoreError: a port is taken; the store cannot be opened.
    """
    if with_parent:
        os.nice(BESIDE_AN_ENGINE)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    otlp_sock = bind(host, ports[0], "--otlp-port")
    api_sock = bind(host, ports[1], "--api-port")
    store = await asyncio.to_thread(open_store, store_url, settings.store)
    try:
        for file in ready_files:  # one that a killed collector of this store left behind
            file.unlink(missing_ok=True)
        await asyncio.to_thread(migrate, store)
        await asyncio.to_thread(apply_keeping, store)
        if not stop.is_set():
            folder = settings.spool.folder or spool_folder(store_url)
            receiver = build_receiver(settings, store, SystemClock(), folder)
            await _serve(receiver, store, settings, otlp_sock, api_sock, ready_files, with_parent, stop)
    finally:
        for file in ready_files:
            file.unlink(missing_ok=True)
        await asyncio.to_thread(store.close)


async def _serve(
    receiver: Receiver,
    store: Store,
    settings: CollectorSettings,
    otlp_sock: socket.socket,
    api_sock: socket.socket,
    ready_files: Sequence[Path],
    with_parent: bool,
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    await receiver.start()
    servers = [_Quiet(_config(receiver.app)), _Quiet(_config(build_api(store, receiver.counts)))]
    serving = [
        asyncio.create_task(server.serve(sockets=[sock]))
        for server, sock in zip(servers, (otlp_sock, api_sock), strict=True)
    ]
    await asyncio.gather(*(s.until_started() for s in servers))
    facts = {"collector": url_of(otlp_sock), "api": url_of(api_sock), "pid": os.getpid()}
    for file in ready_files:
        write_ready(file, facts)
    if with_parent:
        _stop_when_parent_ends(loop, stop)
    else:
        sys.stderr.write(f"stagelens: OTLP on {facts['collector']}, API on {facts['api']}\n")
    await stop.wait()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving, return_exceptions=True)
    await receiver.stop(settings.shutdown_timeout_s)


class _Quiet(uvicorn.Server):
    """uvicorn without its own signal handlers; the caller decides when it stops."""

    async def until_started(self) -> None:
        while not self.started:  # noqa: ASYNC110  uvicorn has a flag, not an event
            await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="none",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=3,
        ws="none",
    )


def _stop_when_parent_ends(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Standard input is a pipe from the parent: its end is the parent's end, however it came."""
    fd = sys.stdin.fileno()

    def ended() -> None:
        if not os.read(fd, 1024):
            loop.remove_reader(fd)
            stop.set()

    loop.add_reader(fd, ended)
