"""TTLs and tiers follow the settings, also of tables that exist."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from collectors.receive.signals import COLUMNS
from collectors.store.client import Store
from collectors.store.errors import StoreError
from collectors.store.keeping import MERGE_BASE, PLAIN_TABLES, TIMES, apply_keeping, merge_rarely
from collectors.store.migrate import load_migrations, migrate, rollback
from collectors.store.settings import MOST_DAYS, StoreSettings
from tests.unit.collectors.test_store import trace_row
from tracer.clock import SystemClock


def told(store, **settings: object) -> Store:
    return Store(store._client, store.url, StoreSettings(**settings), None)


def ttl(store, table: str) -> str:
    rows = store.query(
        "SELECT create_table_query AS q FROM system.tables WHERE database = {d:String} AND name = {t:String}",
        {"d": store.database, "t": table},
    )  # fmt: skip
    return str(rows[0]["q"]).partition(" TTL ")[2].partition(" SETTINGS ")[0]


def test_a_table_as_the_settings_say_is_left_alone(store):
    """Nothing told: nothing changes, whatever the defaults are; and all tables with an age are known."""
    assert apply_keeping(told(store)) == []
    assert apply_keeping(told(store, ttl_days=10_000, rollup_ttl_days=365)) == []
    rows = store.query(
        "SELECT name FROM system.tables WHERE database = {d:String} AND engine LIKE '%MergeTree' "
        "AND create_table_query LIKE '%TTL%'", {"d": store.database},
    )  # fmt: skip
    assert {str(row["name"]) for row in rows} - {"foreign_traces"} <= set(TIMES)


def test_changed_days_are_applied_to_existing_tables_once(store):
    """Days of rows and of roll-ups; a second time nothing is to do."""
    changed = apply_keeping(told(store, ttl_days=7, rollup_ttl_days=90))
    assert {"otel_traces", "requests", "requests_1m"} <= set(changed)
    assert ttl(store, "requests") == "toDateTime(Timestamp) + toIntervalDay(7)"
    assert ttl(store, "requests_1h") == "Hour + toIntervalDay(90)"
    assert apply_keeping(told(store, ttl_days=7, rollup_ttl_days=90)) == []


def test_rows_move_to_another_volume_by_age(store):
    """Written into every table's TTL; a volume that the policy lacks is one error."""
    tier = {"move_after_days": 3, "move_to_volume": "default"}
    assert "requests" in apply_keeping(told(store, **tier))
    assert ttl(store, "requests") == (
        "toDateTime(Timestamp) + toIntervalDay(10000), "
        "toDateTime(Timestamp) + toIntervalDay(3) TO VOLUME 'default'"
    )
    assert apply_keeping(told(store, **tier)) == []
    with pytest.raises(StoreError):
        apply_keeping(told(store, **{**tier, "move_to_volume": "nowhere"}))


@pytest.mark.parametrize(
    "settings",
    [{"move_after_days": 3}, {"move_to_volume": "cold"}, {"storage_policy": "a'b"},
     {"move_after_days": 30, "move_to_volume": "cold"}, {"move_after_days": 1, "move_to_volume": "x;y"}],
)  # fmt: skip
def test_half_a_tier_or_a_name_that_is_none_is_refused(settings):
    """Before anything is asked of a store."""
    with pytest.raises(ValidationError):
        StoreSettings(**settings)


DAYS = sorted(name for name in StoreSettings.model_fields if "_days" in name)


@pytest.mark.parametrize("name", DAYS)
def test_more_days_than_clickhouse_can_add_are_refused(name):
    """Every age in days: 20000 may be told, one more may not."""
    beside = {"move_to_volume": "cold"} if name == "move_after_days" else {}
    with pytest.raises(ValidationError, match="less than or equal to 20000"):
        StoreSettings(**{**beside, name: MOST_DAYS + 1})
    least = {"ttl_days": MOST_DAYS, **beside}
    assert getattr(StoreSettings(**{**least, name: MOST_DAYS - 1}), name) == MOST_DAYS - 1


def test_a_row_of_today_outlives_the_most_days(store):
    """The largest age lies in ClickHouse's future for every column type that tells an age, until 2051."""
    for now in ("now()", "toDateTime('2051-01-01 00:00:00')"):
        rows = store.query(
            f"SELECT toDateTime(toDateTime64({now}, 9)) + toIntervalDay({{n:UInt32}}) > {now} AS kept, "
            f"{now} + toIntervalDay({{n:UInt32}}) > {now} AS kept_rollup, "
            f"toDate({now}) + toIntervalDay({{n:UInt32}}) > toDate({now}) AS kept_day",
            {"n": MOST_DAYS},
        )
        assert set(rows[0].values()) <= {1}


def test_spans_keep_their_rows_age_and_views_when_they_are_put_in_another_order(empty_store):
    """Migration 7 there and back: rows stay, an age that was told before stays, views go on."""
    known = list(load_migrations())
    before = [step for step in known if step.number < 7]
    with_7 = [step for step in known if step.number <= 7]
    store = Store(empty_store._client, empty_store.url, StoreSettings(), None)
    migrate(store, before)
    db = store.database
    store.command(f"ALTER TABLE {db}.otel_traces MODIFY TTL toDateTime(Timestamp) + toIntervalDay(77)")
    columns, counts = COLUMNS["otel_traces"], []
    row = trace_row(SystemClock().unix_ns(), **{"stagelens.record.version": "1"})
    for n, move in enumerate((lambda: migrate(store, with_7), lambda: rollback(store, 6, with_7), lambda: 0)):
        store.insert("otel_traces", columns, [row], str(n))
        move()
        (made,) = store.query(
            "SELECT create_table_query AS q FROM system.tables WHERE database = {db:String} "
            "AND name = 'otel_traces'", {"db": db},
        )  # fmt: skip
        assert "toIntervalDay(77)" in str(made["q"])
        counts.append([
            store.query(f"SELECT count() AS n FROM {db}.{table}", {})[0]["n"]
            for table in ("otel_traces", "requests", "otel_traces_trace_id_ts")
        ])  # fmt: skip
    assert counts == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_tables_of_spans_wait_for_more_parts_before_they_merge(store):
    """Said to each once; the rest of the table stays as it was made."""

    def made() -> dict[str, str]:
        rows = store.query(
            "SELECT name, create_table_query AS q FROM system.tables WHERE database = {d:String}",
            {"d": store.database},
        )
        return {str(row["name"]): str(row["q"]) for row in rows}

    before = made()
    merge_rarely(store)
    after = made()
    merge_rarely(store)
    assert made() == after
    assert {name for name in after if after[name] != before[name]} == set(PLAIN_TABLES)
    for name in PLAIN_TABLES:
        assert after[name] == f"{before[name]}, merge_selector_base = {MERGE_BASE}"
