"""How large the store is, and taking old days out of it."""


from __future__ import annotations

import re
from dataclasses import dataclass

from collectors.store.client import Store


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table on disk, in bytes, packed and plain."""

    table: str
    rows: int
    parts: int
    packed_bytes: int
    plain_bytes: int


def sizes(store: Store) -> list[TableSize]:
    """Each table that has rows, the largest first."""
    rows = store.query(
        "SELECT table, sum(rows) AS rows, count() AS parts, sum(bytes_on_disk) AS packed, "
        "sum(data_uncompressed_bytes) AS plain FROM system.parts "
        "WHERE active AND database = {db:String} GROUP BY table ORDER BY packed DESC, table",
        {"db": store.database},
    )
    return [
        TableSize(
            str(r["table"]), *(int(str(r[k])) for k in ("rows", "parts", "packed", "plain"))
        )
        for r in rows
    ]  # fmt: skip


def prune(store: Store, days: int, today: str | None = None, *, only_say: bool) -> dict[str, int]:
    """Drop whole days older than ``days`` days; rows by table that were (or would be) dropped.

    ``today`` (YYYY-MM-DD) is for tests; the store's own date in UTC otherwise.
    """
    rows = store.query(
        "SELECT table, partition, sum(rows) AS rows FROM system.parts WHERE active "
        "AND database = {db:String} AND match(partition, '^[0-9]{4}-[0-9]{2}-[0-9]{2}$') "
        "AND toDateOrZero(partition) < if({today:String} = '', toDate(now('UTC')), "
        "toDateOrZero({today:String})) - {days:UInt32} GROUP BY table, partition",
        {"db": store.database, "today": today or "", "days": days},
    )
    dropped: dict[str, int] = {}
    for row in rows:
        table, day = str(row["table"]), str(row["partition"])
        if not re.fullmatch(r"\w+", table):
            continue
        if not only_say:
            store.command(f"ALTER TABLE `{store.database}`.`{table}` DROP PARTITION '{day}'")
        dropped[table] = dropped.get(table, 0) + int(str(row["rows"]))
    return dropped
