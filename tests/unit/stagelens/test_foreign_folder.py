"""A folder that holds other files: reading makes nothing in it, writing refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.store.errors import StoreError
from collectors.store.folder import holds_store, refuse_foreign
from collectors.store.url import StoreUrl
from tests.unit.stagelens.test_cli_mistakes import stagelens, the_sentence


def all_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(params=["foreign", "empty"])
def data(request, tmp_path: Path) -> Path:
    """A data folder whose store is another's folder, or an empty one."""
    store = tmp_path / "d" / "store"
    store.mkdir(parents=True)
    if request.param == "foreign":
        (store / "readme.txt").write_text("mine")
    return tmp_path / "d"


def test_reading_makes_nothing(data):
    """Report by folder and by address, and the looks of `store`: one sentence, and all is as before."""
    before = all_below(data)
    address = f"chdb://{data / 'store'}"
    for command in (
        ("report", "--data-dir", data), ("report", "--store", address),
        ("store", "check", "--store", address), ("store", "prune", "--days", 1, "--store", address),
    ):  # fmt: skip
        assert "no store" in the_sentence(stagelens(*command), 1)
        assert all_below(data) == before


def test_writing_refuses_another_s_folder(tmp_path):
    """`collect` and `store migrate`: one sentence that names a file, and nothing in the folder."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "readme.txt").write_text("mine")
    address = f"chdb://{store}"
    for command in (
        ("collect", "--otlp-port", 0, "--api-port", 0, "--store", address),
        ("store", "migrate", "--store", address),
    ):
        assert "readme.txt" in the_sentence(stagelens(*command), 1)
        assert all_below(tmp_path) == ["store", "store/readme.txt"]


def test_what_may_become_a_store(tmp_path):
    """None, an empty one, a disk's own one, one that ClickHouse has begun; a store with more in it."""
    url = StoreUrl.parse(f"chdb://{tmp_path / 'store'}")
    refuse_foreign(url)
    for name in ("lost+found", "tmp", "metadata"):
        (tmp_path / "store" / name).mkdir(parents=True)
        refuse_foreign(url)
    (tmp_path / "store" / "note").write_text("")
    with pytest.raises(StoreError, match="note"):
        refuse_foreign(url)
    assert not holds_store(url)
    (tmp_path / "store" / "metadata" / "otel.sql").write_text("")
    refuse_foreign(url)
    assert holds_store(url)
    assert holds_store(StoreUrl.parse("clickhouse://u@h:1/x"))
