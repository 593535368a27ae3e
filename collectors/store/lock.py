"""One process owns an embedded data folder; a second one is told who does."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from collectors.store.errors import StoreOwned, StoreUnwritable


class FolderLock:
    """An advisory lock that ends with its process, however that ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def refuse_owned(folder: Path) -> None:
    """For what makes nothing, not even the lock's file.

    Raises:
        StoreOwned: another process owns ``folder``; its process id is named.
    """
    try:
        fd = os.open(_file_of(folder), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        raise _owned(folder, fd) from None
    finally:
        os.close(fd)


def _file_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _owned(folder: Path, fd: int) -> StoreOwned:
    owner = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
    return StoreOwned(
        f"store folder {folder} is owned by process {owner}: stop it, ask it with "
        "--collector URL, or give another folder"
    )


def _unwritable(folder: Path) -> Path | None:
    """The first of the store's folders that ClickHouse, which writes to all, would fail at."""
    inner = [folder / name for name in ("data", "metadata", "store", "tmp")]
    of_tables = folder / "store"
    tables: Iterable[Path] = of_tables.glob("*") if os.access(of_tables, os.R_OK | os.X_OK) else ()
    for one in (folder, *inner, *tables):
        if one.is_dir() and not os.access(one, os.R_OK | os.W_OK | os.X_OK):
            return one
    return None


def lock_folder(folder: Path) -> FolderLock:
    """Make ``folder`` and own it.

    Raises:
        StoreUnwritable: it cannot be made or written.
        StoreOwned: another process owns it; its process id is named.
    """
    file = _file_of(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StoreUnwritable(
            f"store folder {folder} cannot be written ({problem.strerror}): "
            "give a folder that you may write"
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        told = _owned(folder, fd)
        os.close(fd)
        raise told from None
    if (wrong := _unwritable(folder)) is not None:
        os.close(fd)
        raise StoreUnwritable(f"store folder {wrong} is not writable: give one that is")
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return FolderLock(fd)
