"""Spans from their bodies to the store without a row in Python: one file, one insert."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from collectors.store.errors import StoreRefused
from collectors.write import plain_sql
from tracer.clock import Clock

TABLE = "otel_traces"
CAREFUL_NS = 600 * 10**9
ONE_BLOCK = {"min_insert_block_size_rows": 1 << 24, "min_insert_block_size_bytes": 1 << 34}
"""An insert is one part for each day, whatever its size, so that its token stands for all of it."""


class NativeStore(Protocol):
    """What is needed of a store: its embedded engine as a reader, and inserts of whole blocks."""

    def convert(self, sql: str) -> bytes: ...

    def insert_native(
        self, table: str, columns: tuple[str, ...], block: bytes, token: str, settings: Mapping[str, object]
    ) -> None: ...


class PlainSpans:
    """For one thread. ``folder`` holds the file that the engine reads, for the time of a write."""

    def __init__(self, store: NativeStore, folder: Path, clock: Clock) -> None:
        self._store = store
        self._careful_until_ns = 0
        self._told = False
        self._clock = clock
        self._file = folder / "reading.bin"
        self._schema = folder / "otlp.proto"  # a schema in the statement is kept in the current folder
        if any(mark in str(self._file) for mark in "'\\*?{}"):
            raise ValueError("the folder's name has a quote or a glob")

    @property
    def careful(self) -> bool:
        """Whether bodies with rare things came lately: those should be found before they come here."""
        return self._clock.mono_ns() < self._careful_until_ns

    def write(self, bodies: list[bytes], spans: int, token: str) -> None:
        """Insert the spans of ``bodies``, once for one ``token``.

        Raises:
            StoreRefused: they are not what ``collectors.receive.plain`` lets pass, or the store
                does not take them; they may go as rows.
            StoreError: as ``Store.insert``.
        """
        try:
            if not self._told:
                self._schema.write_text(plain_sql.SCHEMA, encoding="utf-8")
                self._told = True
            with self._file.open("wb") as file:
                file.writelines(bodies)
            sql = plain_sql.select(str(self._file), str(self._schema))
            block = self._store.convert(sql)
        except StoreRefused:
            self._careful_until_ns = self._clock.mono_ns() + CAREFUL_NS
            raise
        finally:
            self._file.unlink(missing_ok=True)
        if rows_of(block) != spans:
            raise StoreRefused("the bodies do not hold the spans that were counted in them")
        columns = tuple(name for name, _ in plain_sql.COLUMNS)
        self._store.insert_native(TABLE, columns, block, token, ONE_BLOCK)


def rows_of(block: bytes) -> int:
    """The rows that the head of a block in ClickHouse's Native format tells."""
    _, at = _number(block, 0)
    return _number(block, at)[0]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at
