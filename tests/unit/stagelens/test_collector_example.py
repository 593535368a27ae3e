"""The example of a stock OpenTelemetry Collector names tables that the migrations make."""

from __future__ import annotations

from pathlib import Path

import yaml

from collectors.store.migrate import load_migrations

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "otel-collector.yaml"


def test_the_example_writes_into_tables_that_exist():
    """Every table of its exporter is made by a migration, and its pipelines name what it defines."""
    told = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    exporter = told["exporters"]["clickhouse"]
    named = {exporter["traces_table_name"], exporter["logs_table_name"]}
    named |= {one["name"] for one in exporter["metrics_tables"].values()}
    made = "\n".join(sql for step in load_migrations() for sql in step.apply)
    assert all(f"CREATE TABLE IF NOT EXISTS {{db}}.{name} (" in made for name in named)
    assert exporter["create_schema"] is False
    for pipeline in told["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(told[kind])
