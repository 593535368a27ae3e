"""Spans from their bodies to the store without a row in Python: one file, one insert."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from collectors.store.errors import StoreRefused
from collectors.write import plain_sql
from tracer.clock import Clock

TABLE = "otel_traces"
CAREFUL_NS = 600 * 10**9
ONE_BLOCK = {"min_insert_block_size_rows": 1 << 24, "min_insert_block_size_bytes": 1 << 34}
"""An insert is one part for each day, whatever its size, so that its token stands for all of it."""


class SelectStore(Protocol):
    """What is needed of a store: the rows of a SELECT that its embedded engine can run."""

    def insert_select(
        self, table: str, columns: tuple[str, ...], select: str, token: str, settings: Mapping[str, object]
    ) -> None: ...


class PlainSpans:
    """Thread-safe. ``folder`` holds the file that the engine reads, for the time of a write."""

    def __init__(self, store: SelectStore, folder: Path, clock: Clock) -> None:
        self._store = store
        self._careful_until_ns = 0
        self._told = False
        self._clock = clock
        self._folder = folder
        self._numbers = itertools.count()
        self._schema = folder / "otlp.proto"  # a schema in the statement is kept in the current folder
        if any(mark in str(folder) for mark in "'\\*?{}"):
            raise ValueError("the folder's name has a quote or a glob")
        for left in folder.glob("reading*"):  # by a process that was killed
            left.unlink(missing_ok=True)

    @property
    def careful(self) -> bool:
        """Whether bodies with rare things came lately: those should be found before they come here."""
        return self._clock.mono_ns() < self._careful_until_ns

    def write(self, bodies: Iterable[tuple[bytes, int]], token: str) -> None:
        """Insert the spans of ``bodies``, once for one ``token``; each with how many it holds.

        Raises:
            StoreRefused: they are not what ``collectors.receive.plain`` lets pass, or the store
                does not take them; they may go as rows.
            StoreError: as ``Store.insert``.
        """
        file = self._folder / f"reading-{next(self._numbers)}.bin"
        columns = tuple(name for name, _ in plain_sql.COLUMNS)
        spans = 0
        try:
            self._tell_schema(file.with_suffix(".proto"))
            with file.open("wb") as opened:
                for body, n in bodies:
                    opened.write(body)
                    spans += n
            select = plain_sql.select(str(file), str(self._schema), spans)
            self._store.insert_select(TABLE, columns, select, token, ONE_BLOCK)
        except StoreRefused:
            self._careful_until_ns = self._clock.mono_ns() + CAREFUL_NS
            raise
        finally:
            file.unlink(missing_ok=True)

    def _tell_schema(self, partial: Path) -> None:
        if not self._told:
            partial.write_text(plain_sql.SCHEMA, encoding="utf-8")
            partial.replace(self._schema)
            self._told = True
