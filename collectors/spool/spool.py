"""A write-ahead spool: bodies on disk before they are acknowledged, kept until stored.

A folder holds ``journal`` and segments ``SIGNAL-NUMBER.pb``. A segment is nothing but
the bodies of export requests one after another, which is again one valid export request
(their only field is repeated), so any OTLP reader reads it; where each body lies and
what became of it stands in the journal. What the store will never take goes to
``aside/``, in the same form, with the reason beside it.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from collectors.spool.journal import AppendFile, Event, line, read_events, replace_events
from collectors.spool.segments import Segments
from collectors.spool.state import NEVER, Entry, Plan, State
from collectors.store.errors import StoreUnwritable
from collectors.store.lock import lock_folder

JOURNAL_BYTES = 16 << 20
"""A longer journal is written anew with what is still of interest."""
Fsync = Literal["always", "interval", "never"]


class SpoolFull(Exception):
    """The body was not taken: the spool has reached its limit, or the disk is full."""


class Spool:
    """One process owns the folder. Thread-safe.

    Raises (when made):
        StoreOwned, StoreUnwritable: one sentence each.
    """

    def __init__(self, folder: Path, limit_bytes: int, fsync: Fsync) -> None:
        self._lock = threading.RLock()
        self._owner = lock_folder(folder)
        self._folder, self._limit, self._fsync = folder, limit_bytes, fsync
        self._inode = folder.stat().st_ino
        self._late: list[Event] = []
        self.state = State()
        try:
            self._journal = self._load()
        except OSError as problem:
            self._owner.release()
            raise StoreUnwritable(
                f"spool folder {folder} cannot be used ({problem.strerror}): make room or give "
                "another with collect.spool.folder"
            ) from None
        self._segments = Segments(folder)
        self._drop_empty()

    def _load(self) -> AppendFile:
        file = self._folder / "journal"
        for event in read_events(file):
            self.state.take(event)
        replace_events(file, self.state.events())
        return AppendFile(file)

    # -- taking in ---------------------------------------------------------------

    def append(
        self,
        signal: str,
        body: bytes,
        window: tuple[int, int],
        kept: dict[str, int],
        refused: dict[str, int],
        digest: str,
        *,
        plain: bool = False,
    ) -> Entry:
        """Put a body on disk; once this returns it may be acknowledged.

        Raises:
            SpoolFull: nothing was kept of it.
        """
        with self._lock:
            if self._segments.size + len(body) > self._limit:
                raise SpoolFull("the spool is full")
            try:
                self._check_here()
                return self._append(signal, body, window, kept, refused, digest, plain)
            except OSError as problem:
                raise SpoolFull(f"the spool cannot be written ({problem.strerror})") from None

    def _append(
        self,
        signal: str,
        body: bytes,
        window: tuple[int, int],
        kept: dict[str, int],
        refused: dict[str, int],
        digest: str,
        plain: bool,
    ) -> Entry:
        segment = self._segments.for_body(signal, self.state.next)
        began = segment.append(body)
        entry = Entry(
            self.state.next, signal, segment.path.name, began, len(body), zlib.crc32(body),
            *window, kept, plain,
        )  # fmt: skip
        event = {
            "k": "body", "e": asdict(entry), "signal": signal, "kept": kept, "refused": refused,
            "digest": digest,
        }  # fmt: skip
        try:
            if self._fsync == "always":
                segment.sync()
            self._note(event, self._fsync == "always")
        except OSError:
            segment.cut_to(began)
            raise
        self._segments.took(segment)
        return entry

    def knows(self, digest: str) -> bool:
        """Whether a body with this digest was taken lately."""
        with self._lock:
            return digest in self.state.recent

    def note_refused(self, signal: str, refused: dict[str, int]) -> None:
        """Count items of a body of which nothing is kept."""
        self._note_later({"k": "refused", "signal": signal, "refused": refused})

    # -- writing out ---------------------------------------------------------------

    def plans(self) -> list[Plan]:
        """Plans that were begun and not ended, oldest first."""
        with self._lock:
            return list(self.state.plans.values())

    def newest(self) -> int:
        """The number of the last body that was taken."""
        return self.state.next - 1

    def plan(
        self,
        most_items: int,
        most_bytes: int,
        batch_rows: int,
        known: int = 1 << 62,
        plain_from: int = NEVER,
    ) -> Plan | None:
        """Note a plan for the oldest entries that have none; None when there are none.

        Those that came after ``known`` wait until they are a whole batch.

        Raises:
            OSError: it could not be noted.
        """
        with self._lock:
            begun = max((p.last for p in self.state.plans.values()), default=0)
            chosen: list[Entry] = []
            items = size = 0
            for entry in self.state.entries.values():
                if entry.number <= begun:
                    continue
                items, size = items + sum(entry.kept.values()), size + entry.size
                if chosen and (items > most_items or size > most_bytes):
                    break
                chosen.append(entry)
            whole = items >= batch_rows or size > most_bytes
            if not chosen or (chosen[0].number > known and not whole):
                return None
            first, last = chosen[0].number, chosen[-1].number
            name = f"{self.state.id}-{first}-{last}"
            told = {"first": first, "last": last, "rows": batch_rows, "from": plain_from}
            self._note({"k": "plan", "t": name, **told})
            return self.state.plans[name]

    def entries(self, plan: Plan) -> list[Entry]:
        with self._lock:
            found = (self.state.entries.get(n) for n in range(plan.first, plan.last + 1))
            return [entry for entry in found if entry is not None]

    def read(self, entry: Entry) -> bytes | None:
        """The body; None when the disk has lost it.

        Raises:
            OSError: the whole folder is not there.
        """
        self._check_here()
        return self._segments.read(entry)

    def split(self, token: str) -> None:
        """Note that a batch is written in halves from now on.

        Raises:
            OSError: it could not be noted.
        """
        with self._lock:
            self._note({"k": "split", "t": token})

    def done(self, token: str, signal: str, n: int, how: str) -> None:
        """Note ``n`` items as written, set aside or refused for the reason ``how``."""
        self._note_later({"k": "done", "t": token, "signal": signal, "n": n, "how": how})

    def end(self, plan: Plan) -> None:
        """All of the plan is done: its bodies are needed no more."""
        with self._lock:
            self._note_later({"k": "end", "t": plan.id})
            self._drop_empty()
            if self._journal.size > JOURNAL_BYTES:
                self._compact()

    def set_aside(self, token: str, signal: str, body: bytes, reason: str) -> Path:
        """Keep an export request that the store will never take, and why.

        Raises:
            OSError: it could not be written.
        """
        folder = self._folder / "aside"
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / f"{signal}-{token.replace('/', '-')}.pb"
        file.write_bytes(body)
        file.with_suffix(".json").write_text(json.dumps({"signal": signal, "reason": reason}) + "\n")
        return file

    # -- upkeep ----------------------------------------------------------------------

    def sync(self) -> None:
        """Make what was appended safe from a power cut, where that is the policy.

        Bodies are taken meanwhile: a slow disk holds up nobody here.
        """
        if self._fsync == "never":
            return
        with self._lock:
            fds = [file.copy_of_fd() for file in (*self._segments.growing(), self._journal)]
        try:
            for fd in fds:
                os.fsync(fd)
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        with self._lock:
            self._note_late()
            for file in (*self._segments.growing(), self._journal):
                file.close()
            self._owner.release()

    def _check_here(self) -> None:
        """An open file can be written on when it is deleted: nothing may be taken into nowhere."""
        try:
            here = self._folder.stat().st_ino == self._inode
        except OSError:
            here = False
        if not here:
            raise FileNotFoundError(errno.ENOENT, "its folder was moved or deleted")

    def _drop_empty(self) -> None:
        self._segments.keep({entry.segment for entry in self.state.entries.values()})

    def _note(self, event: Event, sync: bool = False) -> None:
        began = self._journal.append(b"".join(map(line, (*self._late, event))))
        try:
            if sync:
                self._journal.sync()
        except OSError:
            self._journal.cut_to(began)
            raise
        self._late.clear()
        self.state.take(event)

    def _note_later(self, event: Event) -> None:
        """Events that only save work after a crash: on a full disk they wait in memory."""
        with self._lock:
            self.state.take(event)
            self._late.append(event)
            self._note_late()

    def _note_late(self) -> None:
        try:
            if self._late:
                self._journal.append(b"".join(map(line, self._late)))
                self._late.clear()
        except OSError:
            pass  # tried again with the next event

    def _compact(self) -> None:
        file = self._folder / "journal"
        try:
            replace_events(file, self.state.events())
        except OSError:
            return  # the long one stays
        self._journal.close()
        self._journal = AppendFile(file)
        self._late.clear()

