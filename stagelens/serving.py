"""`stagelens serve`: the collector beside it, the engine in it, and the proxy around both."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from opentelemetry.sdk.resources import Resource

from dashboards.settings import read_token
from proxy.engine.arguments import check_model
from proxy.engine.startup import divert
from proxy.errors import ProxyError
from proxy.pipelines.retrieve.documents import CollectorApi
from proxy.pipelines.settings import DocumentsRetriever, LocalEmbedding
from proxy.reverse import run_reverse
from proxy.server import bind, is_loopback, run_loop, url_of
from proxy.stopping import Stopping
from stagelens.child import CollectorChild
from stagelens.errors import UserError
from stagelens.paths import DataFolder, default_data_dir
from stagelens.ready import check_ready, remove_ready, write_ready
from stagelens.sender import TOKEN_VARIABLE, sender_headers
from stagelens.settings import Config
from tracer import semconv
from tracer.clock import SystemClock, boot_id
from tracer.export import OtlpExporter
from tracer.export_settings import ExportSettings
from tracer.ids import RandomIds

log = logging.getLogger("stagelens")


COLLECTIONS = (700, 100, 100)
"""Of Python's garbage: the youngest as often as ever, what outlived that a tenth as often. Streams
live for many of the former, and to walk them all takes a millisecond in which no client gets anything.
"""


@dataclass(frozen=True, slots=True)
class ServePorts:
    """Ports of the embedded collector; 0 takes any free one."""

    otlp: int = 4318
    grpc: int = 4317
    api: int = 8090


def serve(
    config: Config, ports: ServePorts, ready_file: Path | None, config_file: Path | None = None
) -> int:
    """Run until told to stop; the exit code. Everything that can be wrong is checked first.

    Raises:
        UserError, ProxyError: one sentence for what is wrong.
        KeyboardInterrupt: told to stop before it served.
    """
    check_ready(ready_file)
    _check(config)
    folder = DataFolder(config.data_dir or default_data_dir())
    folder.prepare()
    os.umask(0o077)
    stopping = Stopping()
    stopping.install()
    _log_to(folder.logs / "proxy.log", access=config.proxy.access_log)
    sock = bind(config.proxy.host, config.proxy.port)
    try:
        child = None if config.collector else _collector(config, folder, ports, config_file)
        try:
            code = _serve_with(config, folder, sock, child, ready_file, stopping)
        except ProxyError:
            if stopping.told:  # what was stopped did not fail
                raise KeyboardInterrupt from None
            raise
        finally:
            if child is not None and not child.stop(config.collect.shutdown_timeout_s + 10):
                log.error("the collector had to be killed: its last records may be lost")
    finally:
        sock.close()
        remove_ready(ready_file)
        stopping.ended()
    if config.model is not None or _embeds_here(config):
        divert(2, folder.logs / "engine.log")  # libraries complain of leaks at the very end
    return code


def _check(config: Config) -> None:
    """What contradicts itself is wrong usage."""
    if (config.model is None) == (config.upstream is None):
        both = "both" if config.model else "nothing"
        raise UserError(
            f"{both} to serve: give --model MODEL (a folder or a name) or --upstream URL", 2
        )
    if config.collector and config.store:
        raise UserError(
            "--store belongs to the collector of this process and --collector names another one: "
            "give one of them",
            2,
        )
    if config.collect.tls.certfile is not None and not config.collector:
        raise UserError(
            "collect.tls is for `stagelens collect`, whose name its certificate bears: leave it "
            "out here, or run the collector by itself and give --collector https://…",
            2,
        )
    if config.model is not None:
        check_model(config.model)
    elif config.engine_flags:
        raise UserError("flags after -- are the engine's: they need --model, not --upstream", 2)


def _embeds_here(config: Config) -> bool:
    """Whether a pipeline runs an embedding model in this process."""
    return any(
        isinstance(one, DocumentsRetriever)
        and one.search != "text"
        and isinstance(one.embedding, LocalEmbedding)
        for pipeline in config.pipelines.values()
        for one in pipeline.retrievers
    )


def _log_to(file: Path, *, access: bool) -> None:
    """The HTTP server's own log goes to a file that only its owner reads.

    Handlers' tracebacks belong there, not on the terminal.
    """
    handler = logging.FileHandler(file, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    server = logging.getLogger("uvicorn")
    server.addHandler(handler)
    server.setLevel(logging.INFO if access else logging.WARNING)
    server.propagate = False


def _collector(
    config: Config, folder: DataFolder, ports: ServePorts, config_file: Path | None
) -> CollectorChild:
    arguments = [
        "--store", config.store or folder.store_url, "--data-dir", str(folder.root),
        "--otlp-port", str(ports.otlp), "--grpc-port", str(ports.grpc),
        "--api-port", str(ports.api),
    ]  # fmt: skip
    if config_file is not None:
        arguments += ["--config", str(config_file)]
    if config.collect.tokens_file is not None and not os.environ.get(TOKEN_VARIABLE):
        os.environ[TOKEN_VARIABLE] = secrets.token_urlsafe(32)  # the collector is our child
    return CollectorChild(arguments, folder.running, folder.logs / "collector.log")


def _serve_with(
    config: Config,
    folder: DataFolder,
    sock: socket.socket,
    child: CollectorChild | None,
    ready_file: Path | None,
    stopping: Stopping,
) -> int:
    clock = SystemClock()
    endpoint = child.otlp_url if child is not None else (config.collector or "").rstrip("/")
    api = CollectorApi()
    if child is not None:
        api = CollectorApi(child.api_url, read_token(config.api) or "")
    resource = _resource(config)
    exporter = OtlpExporter(ExportSettings(endpoint, headers=sender_headers()), resource, clock)
    exporter.start()

    async def on_ready(served: str) -> None:
        stopping.serves()
        if child is not None and config.model is not None:
            child.leave_engine_alone()
        gc.collect()
        gc.freeze()  # what start-up made lives on: later collections need not walk it while clients wait
        gc.set_threshold(*COLLECTIONS)
        _announce(sock, endpoint, child, served, ready_file)

    try:
        if config.upstream is not None:
            alive = run_loop(
                run_reverse(
                    config.proxy, config.upstream, config.access, sock, exporter, clock,
                    RandomIds(), on_ready, tls=config.tls.options(), pipelines=config.pipelines,
                    collector_api=api, stop=stopping.stop,
                ),
                stopping,
            )  # fmt: skip
        else:
            alive = _run_engine(config, folder, sock, exporter, clock, on_ready, api, stopping)
    finally:
        stopping.over()
        exporter.close(config.proxy.flush_timeout_s)
    _say_losses(exporter)
    return 0 if alive else 1


def _run_engine(
    config: Config,
    folder: DataFolder,
    sock: socket.socket,
    exporter: OtlpExporter,
    clock: SystemClock,
    on_ready: Callable[[str], Awaitable[None]],
    api: CollectorApi,
    stopping: Stopping,
) -> bool:
    from proxy.embedded import run_embedded
    from proxy.engine.lifeline import end_children

    _warn_if_open(config.proxy.host)
    engine_log = folder.logs / "engine.log"
    _say(f"starting the engine for {config.model} (its log: {engine_log})")
    try:
        alive = run_loop(
            run_embedded(
                config.proxy, config.model or "", config.engine_flags, sock, exporter, clock,
                RandomIds(), engine_log, on_ready, config.pipelines, api, stopping.stop,
            ),
            stopping,
        )  # fmt: skip
    finally:
        end_children()
    if not alive:
        log.error("the engine died: see its log %s", engine_log)
    return alive


def _resource(config: Config) -> Resource:
    boot = boot_id()
    return Resource.create(
        {
            semconv.SERVICE_NAME: config.proxy.service_name,
            semconv.SERVICE_VERSION: version("stagelens"),
            semconv.SERVICE_INSTANCE_ID: uuid.uuid4().hex,
            **({semconv.BOOT_ID: boot} if boot else {}),
        }
    )


def _announce(
    sock: socket.socket,
    endpoint: str,
    child: CollectorChild | None,
    served_model: str,
    ready_file: Path | None,
) -> None:
    url = url_of(sock)
    api = child.api_url if child is not None else ""
    if ready_file is not None:
        facts = {"proxy": url, "collector": endpoint, "api": api, "pid": os.getpid()}
        write_ready(ready_file, {**facts, "model": served_model})
    report = f"; `stagelens report --collector {api}` shows the times" if api else ""
    _say(f"ready on {url}/v1 ({served_model}){report}")


def _say(text: str) -> None:
    sys.stderr.write(f"stagelens: {text}\n")
    sys.stderr.flush()


def _say_losses(exporter: OtlpExporter) -> None:
    for kind, counts in exporter.losses().items():
        if counts["dropped"]:
            log.error("lost %s on the way to the collector: %s", kind, counts["dropped"])


def _warn_if_open(host: str) -> None:
    if not is_loopback(host):
        log.warning("listening on %s, beyond this machine, and clients need no key", host)
