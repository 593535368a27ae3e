"""The spool's files of bodies: one that grows for each signal, the older ones only read."""

from __future__ import annotations

import zlib
from pathlib import Path

from collectors.spool.journal import AppendFile
from collectors.spool.state import Entry

SEGMENT_BYTES = 64 << 20


class Segments:
    """``SIGNAL-NUMBER.pb`` in ``folder``. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._growing: dict[str, AppendFile] = {}
        self._sizes = {file.name: file.stat().st_size for file in folder.glob("*.pb")}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes.values())

    def growing(self) -> tuple[AppendFile, ...]:
        return tuple(self._growing.values())

    def for_body(self, signal: str, number: int) -> AppendFile:
        """The file that takes body ``number``."""
        current = self._growing.get(signal)
        if current is None or current.size >= SEGMENT_BYTES:
            if current is not None:
                current.close()
            current = self._growing[signal] = AppendFile(self._folder / f"{signal}-{number:012d}.pb")
            current.cut_to(0)  # a body that was not acknowledged before a crash may lie there
        return current

    def took(self, file: AppendFile) -> None:
        self._sizes[file.path.name] = file.size

    def keep(self, used: set[str]) -> None:
        """Delete all files but these."""
        for name in self._sizes.keys() - used:
            for signal in [s for s, file in self._growing.items() if file.path.name == name]:
                self._growing.pop(signal).close()
            (self._folder / name).unlink(missing_ok=True)
            del self._sizes[name]

    def read(self, entry: Entry) -> bytes | None:
        """The body; None when the disk has lost it."""
        try:
            with (self._folder / entry.segment).open("rb") as file:
                file.seek(entry.at)
                body = file.read(entry.size)
        except OSError:
            return None
        return body if len(body) == entry.size and zlib.crc32(body) == entry.crc else None
