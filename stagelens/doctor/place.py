"""Where things live and listen: data folder, store, collector, ports, clocks."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator

from stagelens.doctor.finding import Finding, failed, ok, warning
from stagelens.paths import DataFolder
from tracer.clock import SystemClock

LITTLE_DISK_GIB = 2
RESOLUTION_NS = 1_000_000


def folder_findings(folder: DataFolder) -> Iterator[Finding]:
    root = folder.root
    nearest = next(p for p in (root, *root.resolve().parents) if p.exists())
    if not nearest.is_dir():
        yield failed("data", f"{nearest} is a file, not a folder: give another one with --data-dir")
        return
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield failed("data", f"{nearest} is not writable: give a folder that is with --data-dir")
        return
    yield ok("data", f"{root} " + ("is writable" if root.exists() else "can be made"))
    free = shutil.disk_usage(nearest).free / 2**30
    if free < LITTLE_DISK_GIB:
        yield warning("data", f"{free:.1f} GiB of disk are free at {nearest}: a full disk stops the "
                      "store; `stagelens store prune --days N` makes room")  # fmt: skip


def store_findings(url_text: str, running: bool) -> Iterator[Finding]:
    """Look into the store; one that a collector has open is left to it."""
    from collectors.store.client import open_store
    from collectors.store.errors import StoreError
    from collectors.store.folder import holds_store, refuse_foreign
    from collectors.store.migrate import verify
    from collectors.store.url import StoreUrl

    url = StoreUrl.parse(url_text)
    if running:
        return
    try:
        refuse_foreign(url)
        if not holds_store(url):  # looking makes none
            yield ok("store", f"{url.path} is not there yet: the first start makes it")
            return
        store = open_store(url)
    except StoreError as problem:
        yield failed("store", str(problem))
        return
    try:
        verify(store)
        yield ok("store", f"{url} is in order")
    except StoreError as problem:
        yield warning("store", f"{problem} (`stagelens store migrate`)")
    finally:
        store.close()


def collector_findings(api: str | None) -> Iterator[Finding]:
    """A collector that runs: does it answer, and has it lost or refused anything?"""
    from dashboards.client import CollectorClient
    from dashboards.errors import DashboardError
    from dashboards.settings import ApiSettings, read_token

    if api is None:
        yield ok("collector", "none runs on this data folder; `serve` and `collect` start one")
        return
    try:
        status = CollectorClient(api, timeout_s=10, token=read_token(ApiSettings())).status()
    except DashboardError as problem:
        yield failed("collector", str(problem))
        return
    yield ok("collector", f"{api} answers: {status.requests:,} requests, {status.spans:,} spans stored")
    for signal, counts in (status.collector or {}).items():
        lost = {**counts.refused, **({"set aside": counts.set_aside} if counts.set_aside else {})}
        if lost:
            told = ", ".join(f"{n:,} {why}" for why, n in sorted(lost.items()))
            yield warning("collector", f"{signal} not stored: {told} (docs/ingest.md)")


def port_findings(ports: dict[str, int], host: str, ours: bool) -> Iterator[Finding]:
    """Ports that `serve` takes by default; taken ones are no fault where our own server runs."""
    taken = [f"{port} ({option})" for option, port in ports.items() if _is_taken(host, port)]
    if taken and not ours:
        yield warning("ports", f"taken on {host}: {', '.join(taken)}: give others, 0 takes any free one")
    elif not taken:
        yield ok("ports", f"{', '.join(map(str, ports.values()))} are free on {host}")


def clock_findings() -> Iterator[Finding]:
    """Durations come from the monotonic clock; the wall clock only places spans."""
    clock = SystemClock()
    first = clock.mono_ns()
    second = clock.mono_ns()
    while second == first:
        second = clock.mono_ns()
    if second - first > RESOLUTION_NS:
        yield warning("clocks", f"the monotonic clock moves in steps of {(second - first) / 1e6:.1f} ms: "
                      "shorter stages cannot be told")  # fmt: skip
    else:
        yield ok("clocks", "the monotonic clock tells stages far below a millisecond apart")
    if not sys.platform.startswith("linux"):
        yield warning("clocks", "no arrival stamps by the kernel here: a busy proxy sees requests late")


def _is_taken(host: str, port: int) -> bool:
    if not port:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return True
    return False

