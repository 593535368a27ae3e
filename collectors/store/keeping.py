"""How long rows are kept and where: the tables brought to what the settings say.

A table has its limits from the day it was made; here they follow what is told at a start of
a collector. What is not told stays as it is: a start without its config file must not
shorten anything. A change is a note in the table, not a rewrite of old parts.
"""

from __future__ import annotations

import re

from collectors.store.client import Store
from collectors.store.cluster import LOCAL
from collectors.store.settings import StoreSettings

TIMES = {
    "otel_traces": "Timestamp",
    "otel_traces_trace_id_ts": "Start",
    "otel_logs": "Timestamp",
    "otel_metrics_gauge": "TimeUnix",
    "otel_metrics_sum": "TimeUnix",
    "otel_metrics_histogram": "TimeUnix",
    "otel_metrics_exponential_histogram": "TimeUnix",
    "otel_metrics_exp_histogram": "TimeUnix",
    "otel_metrics_summary": "TimeUnix",
    "requests": "Timestamp",
    "engine_steps": "Timestamp",
    "requests_1m": "Minute",
    "requests_1h": "Hour",
    "requests_1d": "Day",
}
"""Tables whose rows have an age, and the column that tells it; those that do not exist are left."""
ROLLUPS = ("requests_1m", "requests_1h", "requests_1d")
PLAIN_TABLES = ("otel_traces", "otel_traces_trace_id_ts", "foreign_traces")
"""What spans are written to without rows in Python: a part of up to 200,000 spans each time."""
MERGE_BASE = 12
"""How many parts of a size the embedded engine waits for (its default is 5): of CPU that a span
costs while they come without a pause, merges take a tenth less, and a few more parts are read."""
_DAYS = re.compile(r".*?\+ toIntervalDay\((\d+)\)")


def ttl_of(table: str, settings: StoreSettings, now: str) -> str:
    """The TTL clause that a table with the clause ``now`` should have, without the word TTL."""
    column = TIMES[table]
    at = column if column in ("Start", "Minute", "Hour", "Day") else f"toDateTime({column})"
    name = "rollup_ttl_days" if table in ROLLUPS else "ttl_days"
    days = _DAYS.match(now)
    told = settings.model_fields_set
    if not told & {name, "move_after_days"}:
        return now
    kept = days[1] if days and name not in told else getattr(settings, name)
    clause = f"{at} + toIntervalDay({kept})"
    if settings.move_after_days is not None:
        clause += f", {at} + toIntervalDay({settings.move_after_days}) TO VOLUME '{settings.move_to_volume}'"
    return clause


def kept(store: Store) -> StoreSettings:
    """The settings with the age that ``otel_traces`` has now, where they do not tell one."""
    if "ttl_days" in store.settings.model_fields_set:
        return store.settings
    rows = store.query(
        "SELECT create_table_query AS made FROM system.tables "
        "WHERE database = {db:String} AND name = {name:String}",
        {"db": store.database, "name": "otel_traces" + (LOCAL if store.settings.cluster else "")},
    )
    days = _DAYS.match(_ttl(str(rows[0]["made"]))) if rows else None
    return store.settings.model_copy(update={"ttl_days": int(days[1])}) if days else store.settings


def apply_keeping(store: Store) -> list[str]:
    """Alter the tables that differ from the settings; their names.

    Raises:
        StoreError: a policy or volume is not known to the store.
    """
    suffix = LOCAL if store.settings.cluster else ""
    on = f" ON CLUSTER `{store.settings.cluster}`" if store.settings.cluster else ""
    rows = store.query(
        "SELECT name, create_table_query AS made, storage_policy AS policy FROM system.tables "
        "WHERE database = {db:String} AND engine LIKE '%MergeTree'",
        {"db": store.database},
    )
    changed = []
    for row in rows:
        table = str(row["name"]).removesuffix(suffix)
        if table not in TIMES:
            continue
        alter = f"ALTER TABLE `{store.database}`.`{row['name']}`{on} "
        policy = store.settings.storage_policy
        if policy is not None and policy != row["policy"]:
            store.command(f"{alter}MODIFY SETTING storage_policy = '{policy}'")
            changed.append(table)
        now = _ttl(str(row["made"]))
        wanted = ttl_of(table, store.settings, now)
        if now != wanted:
            store.command(f"{alter}MODIFY TTL {wanted} SETTINGS materialize_ttl_after_modify = 0")
            changed.append(table)
    return sorted(set(changed))


def merge_rarely(store: Store) -> None:
    """Large parts are rewritten less often. Only where the engine is our own: it knows the setting,
    which a server of 24.8 does not."""
    rows = store.query(
        "SELECT name FROM system.tables WHERE database = {db:String} AND name IN {names:Array(String)} "
        "AND create_table_query NOT LIKE '%merge_selector_base%'",
        {"db": store.database, "names": list(PLAIN_TABLES)},
    )
    for row in rows if store.url.kind == "chdb" else ():
        table = f"`{store.database}`.`{row['name']}`"
        store.command(f"ALTER TABLE {table} MODIFY SETTING merge_selector_base = {MERGE_BASE}")


def _ttl(made: str) -> str:
    found = re.search(r" TTL (.*?) SETTINGS ", made.replace("\n", " "))
    return found[1] if found else ""
