"""How large the store is, and taking old days out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from collectors.store.client import Store
from collectors.store.errors import StoreError

ROLLUP = r"^requests_1[mhd](_local)?$"
NEVER_DAYS = 36_500
DAY_NS = 86_400 * 10**9


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


def prune(
    store: Store, days: int, today: str | None = None, *, rollup_days: int | None = None, only_say: bool
) -> dict[str, int]:
    """Drop whole days older than ``days`` days; rows by table that were (or would be) dropped.

    The roll-ups stay, unless ``rollup_days`` says from which age they go, too. ``today``
    (YYYY-MM-DD) is for tests; the store's own date in UTC otherwise.
    """
    rows = store.query(
        "SELECT table, partition, sum(rows) AS rows FROM system.parts WHERE active "
        "AND database = {db:String} AND match(partition, '^[0-9]{4}-[0-9]{2}-[0-9]{2}$') "
        "AND toInt32(toDateOrZero(partition)) < toInt32(if({today:String} = '', toDate(now('UTC')), "
        "toDateOrZero({today:String}))) - if(match(table, {rollup:String}), {rollup_days:Int32}, "
        "{days:Int32}) GROUP BY table, partition",
        {
            "db": store.database, "today": today or "", "days": days, "rollup": ROLLUP,
            "rollup_days": NEVER_DAYS if rollup_days is None else rollup_days,
        },
    )  # fmt: skip
    on = f" ON CLUSTER `{store.settings.cluster}`" if store.settings.cluster else ""
    dropped: dict[str, int] = {}
    for row in rows:
        table, day = str(row["table"]), str(row["partition"])
        if not re.fullmatch(r"\w+", table):
            continue
        if not only_say:
            store.command(f"ALTER TABLE `{store.database}`.`{table}`{on} DROP PARTITION '{day}'")
        dropped[table] = dropped.get(table, 0) + int(str(row["rows"]))
    return dropped


def prune_aside(folder: Path, days: int, now_unix_ns: int, *, only_say: bool) -> tuple[int, int]:
    """Delete what was set aside more than ``days`` days ago; files and bytes.

    Raises:
        StoreError: a file cannot be deleted.
    """
    oldest_ns = now_unix_ns - days * DAY_NS
    files = size = 0
    try:
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            facts = file.stat()
            if file.suffix in (".pb", ".json") and facts.st_mtime_ns < oldest_ns:
                if not only_say:
                    file.unlink()
                files, size = files + 1, size + facts.st_size
    except OSError as problem:
        raise StoreError(
            f"folder {folder} cannot be pruned ({problem.strerror}): check whose it is"
        ) from None
    return files, size
