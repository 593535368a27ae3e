"""Carrying out one plan of the spool: every batch under its token, what is bad set aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from collectors.counts import OF_TABLE, Counts
from collectors.receive.rows import Batch, Row, TimeWindow
from collectors.receive.signals import COLUMNS, OF_NAME
from collectors.spool.spool import Spool
from collectors.spool.state import Entry, Plan
from collectors.store.errors import StoreTooLarge
from collectors.write.aside import only_rows
from collectors.write.attempts import STOPPED, Attempts
from collectors.write.writer import MOST_REFUSALS, RowStore


class PlainStore(Protocol):
    """What writes spans whose rows the store's engine makes of the bodies."""

    def write(self, bodies: Iterable[tuple[bytes, int]], token: str) -> None: ...


@dataclass(slots=True)
class _Tries:
    """What became of the parts of one batch so far."""

    refusals: int = 0
    taken: bool = False
    bad: list[tuple[Entry, Row]] = field(default_factory=list)
    problem: Exception | None = None

    def hopeless(self, answer: Exception) -> bool:
        """Count a refusal; True when it is the batch that is bad, not single rows."""
        if isinstance(answer, StoreTooLarge):
            return False
        self.refusals += 1
        return self.refusals > MOST_REFUSALS and not self.taken


class Carrier:
    """Different plans may be carried out by different threads. ``made`` holds rows that were made
    when their body came in."""

    def __init__(
        self,
        store: RowStore,
        spool: Spool,
        counts: Counts,
        attempts: Attempts,
        plain: PlainStore | None,
    ) -> None:
        self._store = store
        self._spool = spool
        self._counts = counts
        self._attempts = attempts
        self._plain = plain
        self.made: dict[int, tuple[Batch, int]] = {}

    def carry_out(self, plan: Plan) -> bool:
        """False when it was stopped before the end.

        Raises:
            OSError: the spool cannot be read or written.
        """
        entries = self._spool.entries(plan)
        plain = [entry for entry in entries if entry.plain]
        many = sum(entry.kept["spans"] for entry in plain) >= plan.plain_from
        if many and (token := f"{plan.id}/plain/") not in plan.split:
            if not self._write_plain(plan, token, plain):
                return False
            if token not in plan.split:
                entries = [entry for entry in entries if not entry.plain]
        for table, pairs in self._rows(plan, entries).items():
            for n, at in enumerate(range(0, len(pairs), plan.rows)):
                part, tries = pairs[at : at + plan.rows], _Tries()
                token = f"{plan.id}/{table}/{n}/"
                if not self._write(plan, token, table, part, tries):
                    return False
                if tries.bad and f"{token}aside" not in plan.done:
                    self._set_aside(f"{token}aside", table, tries)
        self._spool.end(plan)
        return True

    def _write_plain(self, plan: Plan, token: str, entries: list[Entry]) -> bool:
        """All at once; what goes wrong with them for good is noted, and they go as rows."""
        if token in plan.done:
            return True
        if self._plain is None:  # another program wrote this spool
            self._spool.split(token)
            return True
        write = self._plain.write
        answer = self._attempts.attempt(
            lambda: write(self._bodies(plan, entries), token), "spans", single=False
        )
        if answer is STOPPED:
            return False
        if answer is None:
            gone = (f"{plan.id}/lost/{entry.number}/spans" in plan.done for entry in entries)
            spans = sum(e.kept["spans"] for e, lost in zip(entries, gone, strict=True) if not lost)
            self._settle(token, "spans", spans, "written")
        else:
            self._spool.split(token)
        return True

    def _bodies(self, plan: Plan, entries: list[Entry]) -> Iterator[tuple[bytes, int]]:
        """Read one by one: a plan is larger than what should lie in memory."""
        for entry in entries:
            if (body := self._body(plan, entry)) is not None:
                yield body, entry.kept["spans"]

    def _rows(self, plan: Plan, entries: list[Entry]) -> dict[str, list[tuple[Entry, Row]]]:
        tables: dict[str, list[tuple[Entry, Row]]] = {}
        for entry in entries:
            batch = self._batch(plan, entry)
            for table, rows in batch.rows.items() if batch is not None else ():
                tables.setdefault(table, []).extend((entry, row) for row in rows)
        return tables

    def _batch(self, plan: Plan, entry: Entry) -> Batch | None:
        if (made := self.made.get(entry.number)) is not None:
            return made[0]
        body = self._body(plan, entry)
        if body is None:
            return None
        signal = OF_NAME[entry.signal]
        window = TimeWindow(entry.oldest_unix_ns, entry.newest_unix_ns)
        return signal.to_batch(signal.request.FromString(body), window)

    def _body(self, plan: Plan, entry: Entry) -> bytes | None:
        """None for a body that the disk lost, as a power cut can where it was not synced."""
        body = self._spool.read(entry)
        if body is None:
            for signal, n in entry.kept.items():
                token = f"{plan.id}/lost/{entry.number}/{signal}"
                if token not in plan.done:
                    self._settle(token, signal, n, "spool_damaged")
                    self._attempts.warn("a body of %d %s is damaged in the spool", n, signal)
        return body

    def _write(
        self, plan: Plan, token: str, table: str, pairs: list[tuple[Entry, Row]], tries: _Tries
    ) -> bool:
        """Insert once; what cannot be is halved until it can or is one row.

        A batch of which nothing was taken so far is set aside after enough refusals.
        """
        if token in plan.done:
            tries.taken = True
            return True
        if token not in plan.split:
            rows = [row for _, row in pairs]
            answer = self._attempts.attempt(
                lambda: self._store.insert(table, COLUMNS[table], rows, token), table,
                single=len(rows) == 1,
            )  # fmt: skip
            if answer is None:
                tries.taken = True
                self._settle(token, OF_TABLE[table], len(pairs), "written")
                return True
            if answer is STOPPED:
                return False
            if len(pairs) == 1 or tries.hopeless(answer):
                tries.bad += pairs
                tries.problem = answer
                return True
            self._spool.split(token)
        half = len(pairs) // 2
        halves = [(f"{token}0", pairs[:half]), (f"{token}1", pairs[half:])]
        if len(token) % 2:  # now from this end, now from that: one long run of bad rows is left soon
            halves.reverse()
        return all(self._write(plan, name, table, part, tries) for name, part in halves)

    def _set_aside(self, token: str, table: str, tries: _Tries) -> None:
        """Keep what the store will not take as an export request that can be ingested again."""
        pairs, problem = tries.bad, tries.problem
        by_entry: dict[int, tuple[Entry, list[Row]]] = {}
        for entry, row in pairs:
            by_entry.setdefault(entry.number, (entry, []))[1].append(row)
        bodies = b"".join(
            only_rows(entry, self._spool.read(entry) or b"", table, rows)
            for entry, rows in by_entry.values()
        )
        file = self._spool.set_aside(token, pairs[0][0].signal, bodies, f"{table}: {problem}")
        self._settle(token, OF_TABLE[table], len(pairs), "set_aside")
        self._attempts.warn(
            "%d row(s) of %s were set aside in %s (stagelens ingest takes it): %s",
            len(pairs), table, file, problem,
        )  # fmt: skip

    def _settle(self, token: str, signal: str, n: int, how: str) -> None:
        self._spool.done(token, signal, n, how)
        self._counts.settle(signal, n, how)
