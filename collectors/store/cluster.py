"""The migrations' statements for a cluster: replicated tables, and one over all shards.

Every table ``t`` becomes ``t_local``, replicated, on each node, and ``t``, which reads and
writes all of them: a trace is on one shard, because its id chooses it. Views stand between
the local tables, so that each shard fills its own.
"""

from __future__ import annotations

import re

REPLICATED = "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'"
LOCAL = "_local"
SHARDING = {
    "otel_traces": "cityHash64(TraceId)",
    "otel_traces_new": "cityHash64(TraceId)",
    "otel_traces_old": "cityHash64(TraceId)",
    "otel_traces_trace_id_ts": "cityHash64(TraceId)",
    "otel_logs": "cityHash64(TraceId)",
    "requests": "cityHash64(TraceId)",
}
"""By trace where a row has one; what is written by itself goes to any shard."""
DEFAULT_SHARDING = "rand()"

_TABLE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\{db\}|`\w+`)\.(\w+)")
_VIEW = re.compile(r"^CREATE MATERIALIZED VIEW IF NOT EXISTS (\S+)\.(\w+) TO (\S+)\.(\w+) AS")
_ENGINE = re.compile(r"\) ENGINE = (\w*MergeTree)(\(([^)]*)\))?")
_SOURCE = re.compile(r"\b(FROM|JOIN|INTO|TABLE) (\{db\}|`\w+`)\.(\w+)")


def for_cluster(statement: str, cluster: str) -> list[str]:
    """One statement of a migration as those that do the same on every node of ``cluster``.

    Raises:
        ValueError: a kind of statement that is not known here; a migration says it otherwise.
    """
    on = f"ON CLUSTER `{cluster}`"
    if (table := _TABLE.match(statement)) is not None:
        return _table(statement, table[1], table[2], cluster)
    if (view := _VIEW.match(statement)) is not None:
        head = (
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view[1]}.{view[2]} {on} "
            f"TO {view[3]}.{view[4]}{LOCAL} AS"
        )
        return [head + _locals(statement[view.end() :])]
    if found := re.fullmatch(r"DROP TABLE IF EXISTS (\S+)\.(\w+)", statement):
        names = [found[2]] if found[2].endswith("_mv") else [found[2], found[2] + LOCAL]
        return [f"DROP TABLE IF EXISTS {found[1]}.{name} {on} SYNC" for name in names]
    if found := re.fullmatch(r"TRUNCATE TABLE (\S+)\.(\w+)", statement):
        return [f"TRUNCATE TABLE IF EXISTS {found[1]}.{found[2]}{LOCAL} {on} SYNC"]
    if found := re.fullmatch(r"EXCHANGE TABLES (\S+) AND (\S+)", statement):
        return [f"EXCHANGE TABLES {found[1]}{LOCAL} AND {found[2]}{LOCAL} {on}"]
    if re.fullmatch(r"(DE|AT)TACH TABLE IF (NOT )?EXISTS \S+_mv", statement):
        return [f"{statement} {on}"]
    if statement.startswith(("INSERT INTO", "SELECT")):
        return [statement]  # through the distributed tables
    if found := re.match(r"ALTER TABLE (\S+)\.(\w+) ", statement):
        rest = statement[found.end() :]
        both = [f"ALTER TABLE {found[1]}.{found[2]}{LOCAL} {on} {rest}"]
        if re.match(r"(ADD|DROP|MODIFY|RENAME) COLUMN", rest):
            plain = re.sub(r" CODEC\((?:[^()]|\([^()]*\))*\)", "", rest)
            both.append(f"ALTER TABLE {found[1]}.{found[2]} {on} {plain}")
        return both
    raise ValueError(f"no form for a cluster: {statement[:60]}")


def _table(statement: str, db: str, name: str, cluster: str) -> list[str]:
    on = f"ON CLUSTER `{cluster}`"
    local = statement.replace(
        f"CREATE TABLE IF NOT EXISTS {db}.{name}",
        f"CREATE TABLE IF NOT EXISTS {db}.{name}{LOCAL} {on}",
        1,
    ).replace("non_replicated_deduplication_window", "replicated_deduplication_window")
    local, made = _ENGINE.subn(_replicated, local)
    if made != 1:
        raise ValueError(f"table {name} has no engine of the MergeTree family")
    key = SHARDING.get(name, DEFAULT_SHARDING)
    whole = (
        f"CREATE TABLE IF NOT EXISTS {db}.{name} {on} AS {db}.{name}{LOCAL} "
        f"ENGINE = Distributed(`{cluster}`, {db}, {name}{LOCAL}, {key})"
    )
    return [local, whole]


def _replicated(found: re.Match[str]) -> str:
    more = f", {found[3]}" if found[3] else ""
    return f") ENGINE = Replicated{found[1]}({REPLICATED}{more})"


def _locals(select: str) -> str:
    """A view's SELECT over the node's own tables."""
    return _SOURCE.sub(lambda m: f"{m[1]} {m[2]}.{m[3]}{LOCAL}", select)


def history_engine(cluster: str | None) -> tuple[str, str]:
    """Where the list of migrations is kept: on every node of a cluster the same."""
    if cluster is None:
        return "", "MergeTree"
    path = "'/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}'"
    return f" ON CLUSTER `{cluster}`", f"ReplicatedMergeTree({path})"
