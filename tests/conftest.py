"""What all tests share: one embedded ClickHouse, because a process may open only one."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from collectors.store.client import Store, open_store
from collectors.store.migrate import migrate
from collectors.store.settings import StoreSettings
from collectors.store.url import StoreUrl

ENGINE = ("tests/e2e/", "tests/contract/proxy/test_vllm")

hypothesis.settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")  # laws, not timings, are tested


def together(nodeid: str) -> str:
    """What stays in one process when tests run beside each other: the engine's tests, any other file."""
    file = nodeid.partition("::")[0]
    return "engine" if file.startswith(ENGINE) else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine's tests are the longest and start first."""
    items.sort(key=lambda item: together(item.nodeid) != "engine")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """xdist's own groups want a node's id changed, which pytest 9 does not let them."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)


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
