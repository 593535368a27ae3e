"""The socket, the server and its life: start, serve, drain, stop. Nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import uvicorn

from proxy.arrival import make_listener
from proxy.errors import ProxyError
from proxy.left_behind import with_its_end
from proxy.middleware import App
from proxy.protocol import StampingProtocol
from proxy.recorder import Recorder
from proxy.settings import ProxySettings
from proxy.slices import shorten_slice
from proxy.stopping import SIGNALS, Stopping

log = logging.getLogger("uvicorn.error")
T = TypeVar("T")
SWITCH_S = 0.0001


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """A bound, not yet listening socket, so that a taken port is known before the engine loads.

    Raises:
        ProxyError: the port is taken, needs rights, or the address is not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = make_listener(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except (OSError, OverflowError) as problem:
        sock.close()
        raise ProxyError(_why_not_bound(problem, host, port, option)) from None
    sock.setblocking(False)
    return sock


def _why_not_bound(problem: Exception, host: str, port: int, option: str) -> str:
    code = getattr(problem, "errno", None)
    if code == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another process: stop it or choose {option} N"
    if code == errno.EACCES:
        return f"port {port} needs more rights: choose one above 1023 with {option} N"
    return f"cannot listen on {host}:{port} ({problem}): check --host and {option}"


def url_of(sock: socket.socket) -> str:
    """The address a client on this machine can use."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared, not bound
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether ``host``, as it was given to listen on, is this machine's alone."""
    return host in ("127.0.0.1", "::1", "localhost")


def run_loop(main: Coroutine[Any, Any, T], stopping: Stopping | None = None) -> T:
    """Run ``main`` on uvloop where it is installed: a token costs half the CPU there.

    A thread that builds spans gives the interpreter back to the loop within ``SWITCH_S``; Python's
    own 5 ms would be seen in other requests' first tokens.

    Raises:
        KeyboardInterrupt: ``stopping`` was told before ``main`` served.
    """
    try:
        sys.setswitchinterval(SWITCH_S)
        shorten_slice()
        try:
            import uvloop
        except ImportError:
            run: Any = asyncio.run
        else:
            run = uvloop.run
        watched = main if stopping is None else stopping.watched(main)
        return run(with_its_end(watched))  # type: ignore[no-any-return]
    except asyncio.CancelledError:
        if stopping is None or not stopping.told:
            raise
        raise KeyboardInterrupt from None
    finally:
        main.close()  # one that never began is no fault to be told


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers; the caller decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: App,
    sock: socket.socket,
    settings: ProxySettings,
    recorder: Recorder,
    *,
    on_ready: Callable[[], Awaitable[None]],
    engine_died: Callable[[], bool] = lambda: False,
    stop: asyncio.Event | None = None,
    own_headers: bool = True,
    tls: Mapping[str, Any] | None = None,
) -> bool:
    """Serve until ``stop`` (without one: a signal), or the engine's death; ``False`` for that.

    On stop: no new connections; running requests get ``shutdown_timeout_s`` to
    finish and are then cancelled, each leaving its finished record. ``own_headers``
    adds ``date`` and ``server`` to answers; ``tls`` are uvicorn's ``ssl_*`` options.
    """
    config = uvicorn.Config(
        app,
        http=StampingProtocol,
        loop="none",
        log_config=None,
        access_log=settings.access_log,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        lifespan="on",
        ws="none",
        date_header=own_headers,
        server_header=own_headers,
        **(tls or {}),
    )
    server = _Server(config)
    asyncio.get_running_loop().set_exception_handler(_log_unhandled)
    with _or_signals(stop) as stop, _queries_unlogged():
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        watching = asyncio.create_task(_watch(server, recorder, stop, engine_died))
        try:
            await _until_started(server, serving)
            recorder.note_ready()
            await on_ready()
            await serving
        finally:
            watching.cancel()
            server.should_exit = True
            await asyncio.gather(watching, serving, return_exceptions=True)
    return not engine_died()


def _log_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an application's stray task left goes to the server's log, not to the terminal."""
    problem = context.get("exception")
    log.error("%s", context.get("message", "unhandled error"), exc_info=problem)


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started:
        if serving.done():
            serving.result()
            raise ProxyError("the server stopped while it was starting")
        await asyncio.sleep(0.01)


async def _watch(
    server: uvicorn.Server,
    recorder: Recorder,
    stop: asyncio.Event,
    engine_died: Callable[[], bool],
) -> None:
    while not engine_died():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
            break
    recorder.shutting_down = True
    server.should_exit = True


@contextlib.contextmanager
def _queries_unlogged() -> Iterator[None]:
    """Lines of the access log end a path where its query begins, which may hold a key."""
    access = logging.getLogger("uvicorn.access")
    access.addFilter(_without_query)
    try:
        yield
    finally:
        access.removeFilter(_without_query)


def _without_query(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            a.partition("?")[0] if isinstance(a, str) else a for a in record.args
        )
    return True


@contextlib.contextmanager
def _or_signals(given: asyncio.Event | None) -> Iterator[asyncio.Event]:
    """The event that stops the server: the caller's, or one that a signal sets."""
    if given is not None:
        yield given
        return
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
