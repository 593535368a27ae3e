"""What all tests share: one embedded ClickHouse, because a process may open only one."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from collectors.store.client import Store, open_store
from collectors.store.migrate import migrate
from collectors.store.settings import StoreSettings
from collectors.store.url import StoreUrl

hypothesis.settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")  # laws, not timings, are tested


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What processes share when tests run beside each other: the engine's tests stay together.

    They are the longest and start first; any other file stays whole.
    """
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)
    for item in items:
        together = "engine" if item.get_closest_marker("engine") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(together))


FOREVER = StoreSettings(ttl_days=10_000)
"""Test rows are of a fixed day; whatever today is, they must not be dropped by age."""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The one embedded engine, with the schema in database ``each``."""
    url = StoreUrl(kind="chdb", database="each", path=tmp_path_factory.mktemp("chdb") / "db")
    opened = open_store(url, FOREVER)
    for name in ("compile_expressions", "compile_aggregate_expressions"):
        opened._client.set_client_setting(name, 0)  # takes longer than so small a query
    migrate(opened)
    yield opened
    opened.close()
