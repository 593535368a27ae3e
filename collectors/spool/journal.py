"""An append-only file of events, each line with its checksum; a torn tail is no event."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class AppendFile:
    """A file that grows by whole pieces: one that does not fit leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> int:
        """Where ``data`` now begins.

        Raises:
            OSError: the disk is full or broken; the file is as it was.
        """
        began = at = self.size
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self._fd, view, at)
                view, at = view[done:], at + done
        except OSError:
            os.ftruncate(self._fd, began)
            raise
        self.size = at
        return began

    def cut_to(self, size: int) -> None:
        """Take back what was appended after ``size``."""
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        os.fsync(self._fd)

    def copy_of_fd(self) -> int:
        """A descriptor of its own, so that syncing needs no lock; the caller closes it."""
        return os.dup(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line(event: Event) -> bytes:
    """One event as bytes: eight hex digits of CRC-32, a space, JSON, a line feed."""
    text = json.dumps(event, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_events(path: Path) -> Iterator[Event]:
    """Whole events from the beginning, up to the first that is torn or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for row in data.splitlines(keepends=True):
        mark, _, text = row[:-1].partition(b" ")
        if not row.endswith(b"\n") or mark != b"%08x" % zlib.crc32(text):
            return
        yield json.loads(text)


def replace_events(path: Path, events: Iterable[Event]) -> None:
    """Put ``events`` in the place of the file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.writelines(line(event) for event in events)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
