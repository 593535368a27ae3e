"""A database of its own for each test, in the one embedded engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from collectors.store.client import Store
from collectors.store.migrate import migrate
from tests.conftest import FOREVER


@pytest.fixture
def empty_store(engine: Store) -> Iterator[Store]:
    """A database without tables."""
    name = f"t{uuid.uuid4().hex[:12]}"
    engine.command(f"CREATE DATABASE {name}")
    yield Store(engine._client, replace(engine.url, database=name), FOREVER, None)
    engine.command(f"DROP DATABASE {name}")


@pytest.fixture
def store(empty_store: Store) -> Store:
    """A database with the whole schema."""
    migrate(empty_store)
    return empty_store
