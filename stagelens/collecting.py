"""`stagelens collect`: receiver, store and API in one process, which owns the data folder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from collectors.app import Receiver, build_receiver
from collectors.documents.http import add_documents
from collectors.documents.table import DocumentTable
from collectors.receive.access import read_tokens
from collectors.receive.grpc_server import OtlpGrpc, PortTaken
from collectors.settings import CollectorSettings
from collectors.store.client import open_store
from collectors.store.keeping import apply_keeping, merge_rarely
from collectors.store.migrate import migrate
from collectors.store.url import StoreUrl
from dashboards.api import build_api
from dashboards.prices import Prices
from dashboards.queries.base import QueryLimits
from dashboards.settings import ApiSettings
from proxy.server import bind, is_loopback, url_of
from stagelens.errors import UserError
from stagelens.paths import spool_folder
from stagelens.ready import remove_ready, remove_stale, write_ready
from stagelens.sender import TOKEN_VARIABLE
from tracer.clock import SystemClock

log = logging.getLogger("stagelens")
BESIDE_AN_ENGINE = 10
"""Niceness of a collector on the proxy's machine: writing telemetry waits for requests."""


async def run_collector(
    settings: CollectorSettings,
    store_url: StoreUrl,
    host: str,
    ports: tuple[int, int, int],
    ready_files: Sequence[Path],
    *,
    with_parent: bool,
    asking: ApiSettings,
    prices: Prices | None = None,
    token: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Serve OTLP and the API until a signal comes or the parent is gone; then flush.

    ``ports`` are those of OTLP/HTTP, OTLP/gRPC and the API. ``ready_files`` hold the
    addresses while it runs. The API asks for ``token``, if any; ``asking`` is what else it is
    told. The spool for a server's
    store lies in ``data_dir``, or else in the default data folder.

    Raises:
        ProxyError, StoreError, UserError: a port is taken; the store cannot be opened.
    """
    if with_parent:
        os.nice(BESIDE_AN_ENGINE)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    otlp_sock = bind(host, ports[0], "--otlp-port")
    api_sock = bind(host, ports[2], "--api-port")
    own = [os.environ[TOKEN_VARIABLE]] if settings.tokens_file and TOKEN_VARIABLE in os.environ else []
    tokens = read_tokens(settings.tokens_file, own)
    store = await asyncio.to_thread(open_store, store_url, settings.store)
    try:
        for file in ready_files:  # one that a killed collector of this store left behind
            remove_stale(file)
        await asyncio.to_thread(migrate, store)
        await asyncio.to_thread(apply_keeping, store)
        await asyncio.to_thread(merge_rarely, store)
        if not stop.is_set():
            folder = settings.spool.folder or spool_folder(store_url, data_dir)
            receiver = build_receiver(settings, store, SystemClock(), folder, tokens)
            grpc = OtlpGrpc(receiver.app, settings.max_body_bytes, tokens, settings.tls)
            try:
                grpc_port = grpc.listen(host, ports[1])
            except PortTaken as problem:
                raise UserError(str(problem)) from None
            facts = {
                "collector": _secured(url_of(otlp_sock), settings), "grpc": f"{host}:{grpc_port}",
                "api": url_of(api_sock), "pid": os.getpid(),
            }  # fmt: skip
            socks = otlp_sock, api_sock
            limits = QueryLimits(most_read=asking.most_read)
            api = build_api(
                store, receiver.counts, limits=limits, prices=prices, token=token,
                hosts=asking.hosts if token is None and is_loopback(host) else None,
            )  # fmt: skip
            add_documents(api, DocumentTable(store, SystemClock()))
            _warn_if_open(host, token)
            await _serve(receiver, grpc, api, settings, socks, facts, ready_files, with_parent, stop)
    finally:
        for file in ready_files:
            remove_ready(file)
        await asyncio.to_thread(store.close)


async def _serve(
    receiver: Receiver,
    grpc: OtlpGrpc,
    api: FastAPI,
    settings: CollectorSettings,
    socks: tuple[socket.socket, socket.socket],
    facts: dict[str, object],
    ready_files: Sequence[Path],
    with_parent: bool,
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    await receiver.start()
    await grpc.start()
    servers = [
        _Quiet(_config(receiver.app, settings.tls.uvicorn_options())),
        _Quiet(_config(api, {})),
    ]
    serving = [
        asyncio.create_task(server.serve(sockets=[sock]))
        for server, sock in zip(servers, socks, strict=True)
    ]
    await asyncio.gather(*(s.until_started() for s in servers))
    for file in ready_files:
        write_ready(file, facts)
    if with_parent:
        _stop_when_parent_ends(loop, stop)
    else:
        sys.stderr.write(
            f"stagelens: OTLP on {facts['collector']} and {facts['grpc']} (gRPC), API on {facts['api']}\n"
        )
    await stop.wait()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(grpc.stop(3), *serving, return_exceptions=True)
    await receiver.stop(settings.shutdown_timeout_s)


def _secured(url: str, settings: CollectorSettings) -> str:
    return url if settings.tls.certfile is None else url.replace("http://", "https://", 1)


def _warn_if_open(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        log.warning(
            "the API listens on %s, beyond this machine, and asks for no token: set "
            "STAGELENS_API_TOKEN or api.token_file", host,
        )  # fmt: skip


class _Quiet(uvicorn.Server):
    """uvicorn without its own signal handlers; the caller decides when it stops."""

    async def until_started(self) -> None:
        while not self.started:  # noqa: ASYNC110  uvicorn has a flag, not an event
            await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: object, tls: dict[str, Any]) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="none",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=3,
        ws="none",
        **tls,
    )


def _stop_when_parent_ends(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Standard input is a pipe from the parent: its end is the parent's end, however it came."""
    fd = sys.stdin.fileno()

    def ended() -> None:
        if not os.read(fd, 1024):
            loop.remove_reader(fd)
            stop.set()

    loop.add_reader(fd, ended)
