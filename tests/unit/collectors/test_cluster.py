"""Statements for a cluster: what ClickHouse's own parser reads in them. No cluster was run."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from collectors.store.client import Store, open_store
from collectors.store.cluster import for_cluster
from collectors.store.errors import StoreError
from collectors.store.migrate import load_migrations, statements
from collectors.store.settings import StoreSettings
from collectors.store.url import StoreUrl

CLUSTER = StoreSettings(cluster="main-1")


def all_of(section: str) -> list[str]:
    return [sql for step in load_migrations() for sql in statements(step, section, "otel", CLUSTER)]


def test_every_migration_has_a_form_for_a_cluster_that_clickhouse_parses(engine):
    """Apply, verify and rollback of every step, read by the engine's parser."""
    for section in ("apply", "verify", "rollback"):
        for sql in all_of(section):
            (row,) = engine.query("SELECT formatQuery({q:String}) AS made", {"q": sql})
            assert row["made"], sql


def test_every_table_is_replicated_and_has_a_distributed_one_above_it():
    """One local and one whole table each, on all nodes; traces by trace id; the dedup log is kept."""
    made = "\n".join(all_of("apply"))
    local = re.findall(r"CREATE TABLE IF NOT EXISTS `otel`\.(\w+)_local ON CLUSTER `main-1`", made)
    made_as = r"CREATE TABLE IF NOT EXISTS `otel`\.(\w+) ON CLUSTER `main-1` AS `otel`\.\1_local"
    whole = re.findall(made_as, made)
    assert sorted(local) == sorted(whole)
    assert {"otel_traces", "requests", "requests_1m", "engine_steps"} <= set(whole)
    assert len(re.findall(r"ENGINE = Replicated\w*MergeTree\('/clickhouse/tables/", made)) == len(local)
    assert "Distributed(`main-1`, `otel`, otel_traces_local, cityHash64(TraceId))" in made
    assert "Distributed(`main-1`, `otel`, requests_local, cityHash64(TraceId))" in made
    assert "non_replicated" not in made
    single = "\n".join(sql for step in load_migrations() for sql in step.apply)
    assert made.count(" replicated_deduplication_window") == single.count("non_replicated_dedup")


def test_views_stand_between_the_nodes_own_tables():
    """Each reads from and writes to a local table, so a shard fills its own."""
    views = [sql for sql in all_of("apply") if sql.startswith("CREATE MATERIALIZED VIEW")]
    assert len(views) >= 4
    for sql in views:
        assert re.search(r"ON CLUSTER `main-1` TO `otel`\.\w+_local AS", sql)
        assert all(name.endswith("_local") for name in re.findall(r"(?:FROM|JOIN) `otel`\.(\w+)", sql))


def test_going_back_leaves_no_table():
    """Every table and view that is made is dropped on all nodes."""
    apply, undo = "\n".join(all_of("apply")), "\n".join(all_of("rollback"))
    made = set(re.findall(r"CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS (\S+)", apply))
    gone = set(re.findall(r"DROP TABLE IF EXISTS (\S+) ON CLUSTER `main-1` SYNC", undo))
    assert made <= gone


@pytest.mark.parametrize(
    ("statement", "made"),
    [
        ("ALTER TABLE {db}.requests ADD COLUMN X UInt8 CODEC(T64, ZSTD(1))",
         ["ALTER TABLE {db}.requests_local ON CLUSTER `c` ADD COLUMN X UInt8 CODEC(T64, ZSTD(1))",
          "ALTER TABLE {db}.requests ON CLUSTER `c` ADD COLUMN X UInt8"]),
        ("ALTER TABLE {db}.requests MODIFY TTL now()",
         ["ALTER TABLE {db}.requests_local ON CLUSTER `c` MODIFY TTL now()"]),
    ],
)  # fmt: skip
def test_an_alter_reaches_both_tables_where_it_is_about_columns(statement, made):
    """A codec or TTL is the local table's alone."""
    assert for_cluster(statement, "c") == made


def test_rows_are_deleted_on_every_shard():
    """ClickHouse deletes nothing through a Distributed table."""
    url = StoreUrl.parse("clickhouse://localhost:8123/traces")
    assert Store(None, url, StoreSettings(), None).held("requests") == "`traces`.requests"
    assert Store(None, url, CLUSTER, None).held("requests") == "`traces`.requests_local ON CLUSTER `main-1`"


def test_an_unknown_statement_and_an_embedded_cluster_are_refused(tmp_path):
    """Neither is done silently on one node."""
    with pytest.raises(ValueError, match="no form for a cluster"):
        for_cluster("GRANT ALL ON *.* TO x", "c")
    with pytest.raises(StoreError, match="no cluster"):
        open_store(StoreUrl.parse(f"chdb://{tmp_path}/s"), CLUSTER)
    with pytest.raises(ValidationError):
        StoreSettings(cluster="a`; DROP")
