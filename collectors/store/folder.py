"""What lies in the folder of an embedded store: ClickHouse's own files, nothing, or another's."""

from __future__ import annotations

from collectors.store.errors import StoreError
from collectors.store.lock import refuse_owned
from collectors.store.url import StoreUrl

OF_CLICKHOUSE = frozenset({"data", "metadata", "metadata_dropped", "store", "tmp", "status"})
OF_THE_DISK = frozenset({"lost+found"})
"""What a disk's own folder holds before anything is written to it."""


def holds_store(url: StoreUrl) -> bool:
    """Has ClickHouse made our database in the folder? Always so for a server: it is asked itself."""
    if url.path is None:
        return True
    try:
        return (url.path / "metadata" / f"{url.database}.sql").is_file()
    except OSError:
        return False


def refuse_no_store(url: StoreUrl) -> None:
    """For what only reads, which makes nothing.

    Raises:
        StoreError: the folder is missing, another process's, or no store of ours.
    """
    try:
        missing = url.path is not None and not url.path.is_dir()
    except OSError as problem:
        raise StoreError(
            f"store folder {url.path} cannot be read ({problem.strerror}): check its rights"
        ) from None
    if missing:
        raise StoreError(f"store folder {url.path} does not exist: check the path")
    if not holds_store(url):
        if url.path is not None:
            refuse_owned(url.path)  # its owner may not have made the store yet
        raise StoreError(f"folder {url.path} holds no store: check the path")


def refuse_foreign(url: StoreUrl) -> None:
    """For what may make a store: a new or empty folder, or one that ClickHouse has begun.

    Raises:
        StoreError: the folder has files of others and no store of ours.
    """
    if url.path is None or holds_store(url):
        return
    try:
        names = {entry.name for entry in url.path.iterdir()}
    except OSError:  # there is none, or it cannot be read: opening it says so
        return
    if others := sorted(names - OF_CLICKHOUSE - OF_THE_DISK):
        raise StoreError(
            f"store folder {url.path} holds no store but other files ({others[0]}): "
            "give an empty or a new folder"
        )
