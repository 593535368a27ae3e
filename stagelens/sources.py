"""Whom the reading commands ask: a running collector, or a store that nobody has open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboards.client import CollectorClient
from dashboards.errors import UnavailableError
from dashboards.settings import ApiSettings, read_token
from dashboards.source import Source, StoreSource
from stagelens.errors import UserError
from stagelens.paths import DataFolder, default_data_dir
from stagelens.ready import read_ready
from tracer.clock import SystemClock

DEFAULT_API = "http://127.0.0.1:8090"


@contextmanager
def open_source(
    collector: str | None, store: str | None, data_dir: Path | None
) -> Iterator[Source]:
    """The source that was asked for, or the one that is there.

    Without ``collector`` or ``store``: the collector that runs on the data folder, then
    (where no folder was named) one on the default port, then the folder's store itself.

    Raises:
        UserError: both were given, or there is none of these.
        StoreError, DashboardError: it cannot be opened or asked.
    """
    if collector and store:
        raise UserError("--collector and --store are two sources: give one of them", 2)
    if collector:
        yield CollectorClient(collector, token=read_token(ApiSettings()))
    elif store:
        with _opened(store) as source:
            yield source
    else:
        folder = DataFolder(data_dir or default_data_dir())
        if (client := _running(folder, default_too=data_dir is None)) is not None:
            yield client
        elif _holds_store(folder):
            with _opened(folder.store_url) as source:
                yield source
        else:
            raise UserError(
                f"there is nothing to read: no collector answers and {folder.root} holds no "
                "store; start `stagelens serve`, or give "
                "--collector URL, --store URL or --data-dir DIR"
            )


def _running(folder: DataFolder, *, default_too: bool) -> CollectorClient | None:
    """The collector of ``folder``; one on the default port only where no folder was named."""
    facts = read_ready(folder.running)
    urls = [str(facts["api"])] if facts and "api" in facts else []
    for url in urls + ([DEFAULT_API] if default_too else []):
        client = CollectorClient(url, timeout_s=60, token=read_token(ApiSettings()))
        try:
            client.health()
        except UnavailableError:
            continue
        return client
    return None


def _holds_store(folder: DataFolder) -> bool:
    from collectors.store.folder import holds_store
    from collectors.store.url import StoreUrl

    return holds_store(StoreUrl.parse(folder.store_url))


@contextmanager
def _opened(text: str) -> Iterator[Source]:
    from collectors.store.client import open_store
    from collectors.store.errors import StoreUnwritable
    from collectors.store.folder import refuse_no_store
    from collectors.store.migrate import migrate
    from collectors.store.url import StoreUrl

    url = StoreUrl.parse(text)
    refuse_no_store(url)
    try:
        store = open_store(url)
    except StoreUnwritable as problem:
        raise StoreUnwritable(
            f"{str(problem).rpartition(': ')[0]}, and the embedded store writes there even to be read: "
            "copy the folder to where you may write, or ask its collector with --collector URL"
        ) from None
    try:
        migrate(store)
        yield StoreSource(store, SystemClock())
    finally:
        store.close()
