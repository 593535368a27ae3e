"""TTLs and tiers follow the settings, also of tables that exist."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from collectors.store.client import Store
from collectors.store.errors import StoreError
from collectors.store.keeping import TIMES, apply_keeping
from collectors.store.settings import StoreSettings


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
